package main

import (
	"fmt"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Timing is how long upstream takes for the pending pods of a world, one after
// the other, each placed before the next is decided. Nanoseconds.
type Timing struct {
	ID string `json:"id"`
	// Wall and CPU are sums over all pods: snapshot, schedulePod and, for pods
	// that fit nowhere, the PostFilter plugins.
	Wall   int64  `json:"wall"`
	CPU    int64  `json:"cpu"`
	Pods   int    `json:"pods"`
	Placed int    `json:"placed"`
	Error  string `json:"error,omitempty"`
}

func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// timeWorld decides the pending pods the way the scheduling loop does.
func timeWorld(w *World) *Timing {
	t := &Timing{ID: w.ID}
	if err := t.run(w); err != nil {
		t.Error = err.Error()
	}
	return t
}

func (t *Timing) run(w *World) error {
	if err := w.decode(); err != nil {
		return err
	}
	e, err := newEnv(w)
	if err != nil {
		return err
	}
	defer e.cancel()
	logger := klog.FromContext(e.ctx)
	for _, pod := range w.pending {
		f, ok := e.sched.Profiles[pod.Spec.SchedulerName]
		if !ok {
			return fmt.Errorf("no profile for scheduler name %q", pod.Spec.SchedulerName)
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return err
		}
		queued := &framework.QueuedPodInfo{PodInfo: info}
		state := framework.NewCycleState()
		state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
		wall, cpu := time.Now(), cpuTime()
		result, err := e.sched.SchedulePod(e.ctx, f, state, queued)
		if fit, isFit := err.(*framework.FitError); isFit && f.HasPostFilterPlugins() {
			f.RunPostFilterPlugins(e.ctx, state, pod, fit.Diagnosis.NodeToStatus)
		}
		t.Wall += time.Since(wall).Nanoseconds()
		t.CPU += cpuTime() - cpu
		t.Pods++
		if err != nil {
			if _, isFit := err.(*framework.FitError); !isFit {
				return err
			}
			continue
		}
		assumed := queued.DeepCopy().Pod
		assumed.Spec.NodeName = result.SuggestedHost
		if err := e.sched.Cache.AssumePod(logger, assumed); err != nil {
			return err
		}
		var status *fwk.Status
		if status = f.RunReservePluginsReserve(e.ctx, state, assumed, result.SuggestedHost); !status.IsSuccess() {
			return status.AsError()
		}
		t.Placed++
	}
	return nil
}
