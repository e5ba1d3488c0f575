// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// burst is one Deployment, from its creation until nothing is left of it.
type burst struct {
	Pods      int
	Offloaded bool
	Real      bool // on a real kubelet

	Ready   float64 // seconds until all pods are Ready where the Deployment is
	Gone    float64 // seconds until all of them are gone
	CPU     cpu     // from the creation until all are Ready, and the time after it
	CPUGone cpu
	Busy    float64 // share of the machine's processor time in use until all were Ready

	// Of offloaded ones.
	RemoteReady            float64 `json:",omitzero"` // seconds until all are Ready at the provider
	RemoteGone             float64 `json:",omitzero"`
	Visible, Bound, Back   spread  `json:",omitzero"` // seen here to seen there, bound here to seen there, Ready there to Ready here
	Bytes, BytesGone       passed  `json:",omitzero"`
	Consumer, Provider     writes  `json:",omitzero"`
	ConsumerEnd, ProvidEnd writes  `json:",omitzero"` // while it is deleted
	Memory                 memory  `json:",omitzero"` // when all are Ready
}

// writesPerPod are those of both sides from creation to Ready.
func (r burst) writesPerPod() float64 {
	return float64(r.Consumer.Total+r.Provider.Total) / float64(r.Pods)
}

func (r burst) String() string {
	text := fmt.Sprintf("burst of %d: Ready after %.2f s, gone after %.2f s, CPU ours %.2f, Kubernetes %.2f, machine %.2f s (%.0f %% busy)",
		r.Pods, r.Ready, r.Gone, r.CPU.Ours, r.CPU.Kubernetes, r.CPU.Machine, r.Busy*100)
	if !r.Offloaded {
		return "vanilla " + text
	}
	return fmt.Sprintf("offloaded %s\n  all Ready there %.2f s; p50 / p99: here to there %v s, bound to there %v s, Ready there to here %v s\n"+
		"  writes per pod %.2f (consumer %.2f, provider %.2f, across %.2f); bytes per pod to %.0f, back %.0f; gone: writes %.2f, bytes %.0f\n"+
		"  consumer %v refused %v\n  provider %v refused %v\n  CPU %v",
		text, r.RemoteReady, r.Visible, r.Bound, r.Back,
		r.writesPerPod(), r.per(r.Consumer.Total), r.per(r.Provider.Total), r.per(r.Provider.Across), r.Bytes.To/float64(r.Pods), r.Bytes.Back/float64(r.Pods),
		r.per(r.ConsumerEnd.Total+r.ProvidEnd.Total), (r.BytesGone.To+r.BytesGone.Back)/float64(r.Pods),
		r.Consumer.ByCall, r.Consumer.Failed, r.Provider.ByCall, r.Provider.Failed, r.CPU.By)
}

func (r burst) per(n int) float64 { return float64(n) / float64(r.Pods) }

// bursts measures each size offloaded and vanilla in turn.
func (b *bench) bursts(t *testing.T) {
	b.results.MemoryIdle = held(t)
	for _, n := range pods(t) {
		for range *rounds {
			for _, there := range []bool{true, false} {
				b.results.add(t, b.run(t, burst{Pods: n, Offloaded: there}, nil))
			}
		}
	}
}

// realKubelet measures writes per pod with the status changes that only real containers go through. Hollow nodes are closed meanwhile.
func (b *bench) realKubelet(t *testing.T) {
	b.provider.Kubectl(t, "taint", "nodes", "-l", "type=kwok", "bench=hollow:NoSchedule", "--overwrite")
	b.provider.Kubectl(t, "taint", "node", b.provider.Nodes[0].Name, "bench-")
	defer func() {
		b.provider.Kubectl(t, "taint", "node", b.provider.Nodes[0].Name, "bench=real:NoSchedule")
		b.provider.Kubectl(t, "taint", "nodes", "-l", "type=kwok", "bench-")
	}()
	b.results.add(t, b.run(t, burst{Pods: 20, Offloaded: true, Real: true}, nil))
}

// run measures one burst; meanwhile, if there is one, is called when all pods are Ready.
func (b *bench) run(t *testing.T, r burst, meanwhile func(*testing.T)) burst {
	t.Helper()
	home, namespace := b.provider, vanilla
	if r.Offloaded {
		home, namespace = b.consumer, offloaded
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u := underway{home: home, namespace: namespace, name: fmt.Sprintf("burst-%d-%d", r.Pods, time.Now().UnixMilli()%1e6)}
	u.here = trackOf(ctx, t, home, namespace, u.name)
	if r.Offloaded {
		u.there = trackOf(ctx, t, b.provider, offloaded, u.name)
	}
	quiet(settle)

	work, bytes, from := used(t), b.link.passed(t), time.Now()
	if err := home.API.Create(ctx, deployment(namespace, u.name, r)); err != nil {
		t.Fatal(err)
	}
	if !u.here.wait(5*time.Minute, func() bool { return len(u.here.ready) >= r.Pods }) {
		home.Show(t)
		t.Fatalf("%d of %d pods of %s are Ready after 5 min", len(u.here.ready), r.Pods, home.Name)
	}
	r.Ready = time.Since(from).Seconds()
	r.Busy = used(t).since(work).Machine / r.Ready / float64(cores())
	quiet(settle)
	to := time.Now()
	r.CPU, r.Bytes = used(t).since(work), b.link.passed(t).since(bytes)
	if r.Offloaded {
		u.here.Lock()
		u.there.Lock()
		r.RemoteReady = latest(u.there.ready).Sub(from).Seconds()
		r.Visible, r.Bound, r.Back = between(u.here.seen, u.there.seen), between(u.here.bound, u.there.seen), between(u.there.ready, u.here.ready)
		u.there.Unlock()
		u.here.Unlock()
		r.Consumer, r.Provider = written(t, b.consumer, from, to, nil), written(t, b.provider, from, to, nil)
		r.Memory = held(t)
	}
	if meanwhile != nil {
		meanwhile(t)
	}
	b.remove(t, &r, u)
	return r
}

// underway is a burst whose Deployment exists.
type underway struct {
	home            *env.Cluster
	namespace, name string
	here, there     *track // there only if it is offloaded
}

// remove deletes a burst and measures until it is gone on both sides.
func (b *bench) remove(t *testing.T, r *burst, u underway) {
	t.Helper()
	work, bytes, from := used(t), b.link.passed(t), time.Now()
	if err := u.home.API.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name}},
		client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	ended := func(k *track) bool { return k.wait(3*time.Minute, func() bool { return len(k.gone) >= len(k.seen) }) }
	if !ended(u.here) {
		t.Fatalf("%d of %d pods of %s are gone after 3 min", len(u.here.gone), len(u.here.seen), u.home.Name)
	}
	r.Gone = time.Since(from).Seconds()
	if u.there != nil {
		if !ended(u.there) {
			t.Fatalf("%d of %d pods are gone at the provider 3 min after those here", len(u.there.gone), len(u.there.seen))
		}
		r.RemoteGone = time.Since(from).Seconds()
	}
	quiet(settle)
	r.CPUGone, r.BytesGone = used(t).since(work), b.link.passed(t).since(bytes)
	if r.Offloaded {
		r.ConsumerEnd, r.ProvidEnd = written(t, b.consumer, from, time.Now(), nil), written(t, b.provider, from, time.Now(), nil)
	}
}

// deployment is the one of the reference's measurement: one container, no token.
func deployment(namespace, name string, r burst) *appsv1.Deployment {
	no, replicas, deadline, grace := false, int32(r.Pods), int32(1200), int64(30)
	labels := map[string]string{"bench": name}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "c", Image: "bench.local/none:1", ImagePullPolicy: corev1.PullIfNotPresent}},
	}
	if r.Real {
		grace = 1
		spec.Containers[0].Image, spec.Containers[0].Args = "liqo.io/traffic:dev", []string{"serve"}
	}
	if !r.Offloaded {
		spec.NodeSelector = map[string]string{"type": "kwok"}
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, ProgressDeadlineSeconds: &deadline, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}
