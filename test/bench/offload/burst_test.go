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

// burst is the measurement of one Deployment, from its creation until all its pods are gone.
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
	RemoteReady float64 `json:",omitzero"` // seconds until all are Ready at the provider
	RemoteGone  float64 `json:",omitzero"`
	// Seen at the consumer to seen at the provider, bound at the consumer to seen at the provider, Ready at the provider to Ready at the consumer.
	Visible, Bound, Back   spread      `json:",omitzero"`
	Bytes, BytesGone       transferred `json:",omitzero"`
	Consumer, Provider     writes      `json:",omitzero"`
	ConsumerEnd, ProvidEnd writes      `json:",omitzero"` // during the deletion
	Memory                 memory      `json:",omitzero"` // when all are Ready
}

// writesPerPod is the number of writes of both clusters from creation to Ready.
func (r burst) writesPerPod() float64 {
	return float64(r.Consumer.Total+r.Provider.Total) / float64(r.Pods)
}

func (r burst) String() string {
	text := fmt.Sprintf("burst of %d: Ready after %.2f s, gone after %.2f s, CPU Liqo %.2f, Kubernetes %.2f, machine %.2f s (%.0f %% busy)",
		r.Pods, r.Ready, r.Gone, r.CPU.Liqo, r.CPU.Kubernetes, r.CPU.Machine, r.Busy*100)
	if !r.Offloaded {
		return "vanilla " + text
	}
	return fmt.Sprintf("offloaded %s\n  all Ready at the provider %.2f s; p50 / p99: seen %v s, bound to seen %v s, Ready back %v s\n"+
		"  writes per pod %.2f (consumer %.2f, provider %.2f, across %.2f); bytes per pod to the provider %.0f, back %.0f; gone: writes %.2f, bytes %.0f\n"+
		"  consumer %v failed %v\n  provider %v failed %v\n  CPU %v",
		text, r.RemoteReady, r.Visible, r.Bound, r.Back,
		r.writesPerPod(), r.per(r.Consumer.Total), r.per(r.Provider.Total), r.per(r.Provider.Across), r.Bytes.To/float64(r.Pods), r.Bytes.Back/float64(r.Pods),
		r.per(r.ConsumerEnd.Total+r.ProvidEnd.Total), (r.BytesGone.To+r.BytesGone.Back)/float64(r.Pods),
		r.Consumer.ByCall, r.Consumer.Failed, r.Provider.ByCall, r.Provider.Failed, r.CPU.By)
}

func (r burst) per(n int) float64 { return float64(n) / float64(r.Pods) }

// bursts measures each size, alternating offloaded and vanilla.
func (b *bench) bursts(t *testing.T) {
	b.results.MemoryIdle = memoryNow(t)
	for _, n := range podCounts(t) {
		for range *rounds {
			for _, offload := range []bool{true, false} {
				b.results.add(t, b.run(t, burst{Pods: n, Offloaded: offload}, nil))
			}
		}
	}
}

// realKubelet measures writes per pod with real containers, whose status changes more often. It taints the hollow nodes meanwhile.
func (b *bench) realKubelet(t *testing.T) {
	b.provider.Kubectl(t, "taint", "nodes", "-l", "type=kwok", "bench=hollow:NoSchedule", "--overwrite")
	b.provider.Kubectl(t, "taint", "node", b.provider.Nodes[0].Name, "bench-")
	defer func() {
		b.provider.Kubectl(t, "taint", "node", b.provider.Nodes[0].Name, "bench=real:NoSchedule")
		b.provider.Kubectl(t, "taint", "nodes", "-l", "type=kwok", "bench-")
	}()
	b.results.add(t, b.run(t, burst{Pods: 20, Offloaded: true, Real: true}, nil))
}

// run measures one burst. It calls meanwhile, if not nil, when all pods are Ready.
func (b *bench) run(t *testing.T, r burst, meanwhile func(*testing.T)) burst {
	t.Helper()
	cluster, namespace := b.provider, vanilla
	if r.Offloaded {
		cluster, namespace = b.consumer, offloaded
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u := deployed{cluster: cluster, namespace: namespace, name: fmt.Sprintf("burst-%d-%d", r.Pods, time.Now().UnixMilli()%1e6)}
	u.local = trackOf(ctx, t, cluster, namespace, u.name)
	if r.Offloaded {
		u.remote = trackOf(ctx, t, b.provider, offloaded, u.name)
	}
	idleFor(settle)

	cpuBefore, bytesBefore, from := used(t), b.counters.bytes(t), time.Now()
	if err := cluster.API.Create(ctx, deployment(namespace, u.name, r)); err != nil {
		t.Fatal(err)
	}
	if !u.local.wait(5*time.Minute, func() bool { return len(u.local.ready) >= r.Pods }) {
		cluster.Show(t)
		t.Fatalf("%d of %d pods of %s are Ready after 5 min", len(u.local.ready), r.Pods, cluster.Name)
	}
	r.Ready = time.Since(from).Seconds()
	r.Busy = used(t).since(cpuBefore).Machine / r.Ready / float64(cores())
	idleFor(settle)
	to := time.Now()
	r.CPU, r.Bytes = used(t).since(cpuBefore), b.counters.bytes(t).since(bytesBefore)
	if r.Offloaded {
		u.local.Lock()
		u.remote.Lock()
		r.RemoteReady = latest(u.remote.ready).Sub(from).Seconds()
		r.Visible, r.Bound, r.Back = between(u.local.seen, u.remote.seen), between(u.local.bound, u.remote.seen), between(u.remote.ready, u.local.ready)
		u.remote.Unlock()
		u.local.Unlock()
		r.Consumer, r.Provider = countWrites(t, b.consumer, from, to, nil), countWrites(t, b.provider, from, to, nil)
		r.Memory = memoryNow(t)
	}
	if meanwhile != nil {
		meanwhile(t)
	}
	b.remove(t, &r, u)
	return r
}

// deployed is a burst whose Deployment exists.
type deployed struct {
	cluster         *env.Cluster
	namespace, name string
	local, remote   *track // remote only if it is offloaded
}

// remove deletes a burst and measures until it is gone on both sides.
func (b *bench) remove(t *testing.T, r *burst, u deployed) {
	t.Helper()
	cpuBefore, bytesBefore, from := used(t), b.counters.bytes(t), time.Now()
	if err := u.cluster.API.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name}},
		client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	ended := func(k *track) bool { return k.wait(3*time.Minute, func() bool { return len(k.gone) >= len(k.seen) }) }
	if !ended(u.local) {
		t.Fatalf("%d of %d pods of %s are gone after 3 min", len(u.local.gone), len(u.local.seen), u.cluster.Name)
	}
	r.Gone = time.Since(from).Seconds()
	if u.remote != nil {
		if !ended(u.remote) {
			t.Fatalf("%d of %d pods are gone at the provider 3 min after those of the consumer", len(u.remote.gone), len(u.remote.seen))
		}
		r.RemoteGone = time.Since(from).Seconds()
	}
	idleFor(settle)
	r.CPUGone, r.BytesGone = used(t).since(cpuBefore), b.counters.bytes(t).since(bytesBefore)
	if r.Offloaded {
		r.ConsumerEnd, r.ProvidEnd = countWrites(t, b.consumer, from, time.Now(), nil), countWrites(t, b.provider, from, time.Now(), nil)
	}
}

// deployment is the Deployment that the reference was measured with: one container, no token.
func deployment(namespace, name string, r burst) *appsv1.Deployment {
	no, replicas, deadline, grace := false, int32(r.Pods), int32(1200), int64(30)
	labels := map[string]string{"bench": name}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "c", Image: "bench.local/none:1", ImagePullPolicy: corev1.PullIfNotPresent}},
	}
	if r.Real {
		grace = 1
		spec.Containers[0].Image, spec.Containers[0].Args = "localhost/traffic:dev", []string{"serve"}
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
