package main

import (
	"encoding/json"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// ConfigAnswer is what upstream makes of one KubeSchedulerConfiguration: an
// error, or the plugins of every profile by extension point.
type ConfigAnswer struct {
	Error    string          `json:"error,omitempty"`
	Profiles []ConfigProfile `json:"profiles,omitempty"`
}

// ConfigProfile lists the enabled plugins of a profile.
type ConfigProfile struct {
	SchedulerName string                     `json:"schedulerName"`
	Points        map[string][]PluginWeight  `json:"points"`
	Args          map[string]json.RawMessage `json:"args"`
}

// PluginWeight is an enabled plugin; the weight is that of scoring.
type PluginWeight struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight,omitempty"`
}

// readConfig reads one configuration the way the scheduler does at its start.
func readConfig(line []byte) *ConfigAnswer {
	e, err := newEnv(&World{Config: line})
	if err != nil {
		return &ConfigAnswer{Error: err.Error()}
	}
	defer e.cancel()
	answer := &ConfigAnswer{}
	for _, profile := range e.config.Profiles {
		list := e.sched.Profiles[profile.SchedulerName].ListPlugins()
		points := map[string][]PluginWeight{}
		for name, set := range map[string]config.PluginSet{
			"preEnqueue": list.PreEnqueue, "queueSort": list.QueueSort, "preFilter": list.PreFilter,
			"filter": list.Filter, "postFilter": list.PostFilter, "preScore": list.PreScore,
			"score": list.Score, "reserve": list.Reserve, "permit": list.Permit,
			"preBind": list.PreBind, "bind": list.Bind, "postBind": list.PostBind,
			"placementGenerate": list.PlacementGenerate, "placementScore": list.PlacementScore,
			"podGroupPostFilter": list.PodGroupPostFilter,
		} {
			for _, p := range set.Enabled {
				w := PluginWeight{Name: p.Name}
				if name == "score" {
					w.Weight = p.Weight
				}
				points[name] = append(points[name], w)
			}
		}
		args := map[string]json.RawMessage{}
		for _, pc := range profile.PluginConfig {
			if raw, err := json.Marshal(pc.Args); err == nil {
				args[pc.Name] = raw
			}
		}
		answer.Profiles = append(answer.Profiles, ConfigProfile{profile.SchedulerName, points, args})
	}
	return answer
}
