package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	configvalidation "k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"sigs.k8s.io/yaml"
)

// env is a real scheduler, never started, around the objects of one world.
type env struct {
	ctx      context.Context
	cancel   context.CancelFunc
	config   *config.KubeSchedulerConfiguration
	sched    *scheduler.Scheduler
	snapshot *internalcache.Snapshot
}

// loadConfig decodes (or defaults) and validates a scheduler configuration.
func loadConfig(raw json.RawMessage) (*config.KubeSchedulerConfiguration, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return latest.Default()
	}
	text := []byte(raw)
	var asString string
	if json.Unmarshal(raw, &asString) == nil {
		text = []byte(asString)
	}
	doc, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	obj, gvk, err := configscheme.Codecs.UniversalDecoder().Decode(doc, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	cfg, ok := obj.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("config: %s is not a KubeSchedulerConfiguration", gvk)
	}
	cfg.TypeMeta.APIVersion = gvk.GroupVersion().String()
	if err := configvalidation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return cfg, nil
}

// newEnv builds the scheduler. Nodes and bound pods are put into the
// scheduler cache directly, in world order, which makes the snapshot's node
// order a function of the input; everything else goes through a fake
// clientset and real informers.
func newEnv(w *World) (*env, error) {
	cfg, err := loadConfig(w.Config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &env{ctx: ctx, cancel: cancel, config: cfg, snapshot: internalcache.NewEmptySnapshot()}
	if err := e.build(w); err != nil {
		cancel()
		return nil, err
	}
	return e, nil
}

func (e *env) build(w *World) error {
	logger := klog.FromContext(e.ctx)
	objs := make([]runtime.Object, 0, len(w.other))
	for _, o := range w.other {
		objs = append(objs, o.DeepCopyObject())
	}
	// Every namespace a pod lives in exists in a real cluster.
	haveNS := map[string]bool{}
	for _, o := range w.other {
		if ns, ok := o.(*v1.Namespace); ok {
			haveNS[ns.Name] = true
		}
	}
	for _, pods := range [][]*v1.Pod{w.bound, w.pending, w.waiting} {
		for _, p := range pods {
			if !haveNS[p.Namespace] {
				haveNS[p.Namespace] = true
				ns := &v1.Namespace{}
				ns.Name = p.Namespace
				ns.Labels = map[string]string{v1.LabelMetadataName: p.Namespace}
				objs = append(objs, ns)
			}
		}
	}
	client := fake.NewSimpleClientset(objs...)
	factory := scheduler.NewInformerFactory(client, 0, nil)

	sched, err := scheduler.New(e.ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithComponentConfigVersion(e.config.TypeMeta.APIVersion),
		scheduler.WithProfiles(e.config.Profiles...),
		scheduler.WithPercentageOfNodesToScore(e.config.PercentageOfNodesToScore),
		scheduler.WithParallelism(e.config.Parallelism),
		scheduler.WithExtenders(e.config.Extenders...),
		scheduler.WithNodeInfoSnapshot(e.snapshot),
	)
	if err != nil {
		return err
	}
	e.sched = sched

	factory.Start(e.ctx.Done())
	deadline := time.Now().Add(30 * time.Second)
	for synced := false; !synced; {
		synced = true
		ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
		for _, ok := range factory.WaitForCacheSync(ctx.Done()) {
			synced = synced && ok
		}
		cancel()
		if !synced && time.Now().After(deadline) {
			return fmt.Errorf("informers did not sync")
		}
	}
	waitCtx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	if err := sched.WaitForHandlersSync(waitCtx); err != nil {
		return fmt.Errorf("event handlers did not sync: %w", err)
	}

	// Nodes and pods: cache in world order, informer stores for the listers.
	nodeStore := factory.Core().V1().Nodes().Informer().GetStore()
	podStore := factory.Core().V1().Pods().Informer().GetStore()
	for _, n := range w.nodes {
		if err := nodeStore.Add(n); err != nil {
			return err
		}
		sched.Cache.AddNode(logger, n)
	}
	for _, p := range w.bound {
		if err := podStore.Add(p); err != nil {
			return err
		}
		if err := sched.Cache.AddPod(logger, p); err != nil {
			return err
		}
	}
	for _, pods := range [][]*v1.Pod{w.pending, w.waiting} {
		for _, p := range pods {
			if err := podStore.Add(p); err != nil {
				return err
			}
			if p.Status.NominatedNodeName == "" {
				continue
			}
			// The nominator resolves its pods through the queue.
			sched.SchedulingQueue.Add(e.ctx, p)
		}
	}
	return e.refresh()
}

// refresh copies the scheduler cache into the snapshot, as every scheduling
// cycle does first.
func (e *env) refresh() error {
	return e.sched.Cache.UpdateSnapshot(klog.FromContext(e.ctx), e.snapshot)
}

// preemption returns a private DefaultPreemption instance bound to the
// profile's framework, used to look at all candidates without acting on them.
func (e *env) preemption(f framework.Framework) (*defaultpreemption.DefaultPreemption, error) {
	var args *config.DefaultPreemptionArgs
	for _, p := range e.config.Profiles {
		if p.SchedulerName != f.ProfileName() {
			continue
		}
		for _, pc := range p.PluginConfig {
			if pc.Name == defaultpreemption.Name {
				args = pc.Args.(*config.DefaultPreemptionArgs)
			}
		}
	}
	if args == nil {
		return nil, fmt.Errorf("profile %s has no DefaultPreemptionArgs", f.ProfileName())
	}
	var handle fwk.Handle = f
	return defaultpreemption.New(e.ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
}
