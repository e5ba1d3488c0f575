// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
)

// fakeProvider replaces, in one remote namespace, the controller of ShadowPods, the kubelet, and the garbage collector.
type fakeProvider struct {
	t      *testing.T
	client client.WithWatch

	mu      sync.Mutex
	holding bool
	ending  bool     // pods end when the test lets them
	deleted []string // names of pods that it does not create again
	created []string // UIDs of the local pods, one per created pod
	readyAt map[string]time.Time
	work    chan func()
	shadows *fanin.Source
	pods    *fanin.Source
}

// runProvider runs a fakeProvider until the test ends.
func (e *env) runProvider(remoteNS string) *fakeProvider {
	p := &fakeProvider{t: e.t, client: e.provider, readyAt: map[string]time.Time{}, work: make(chan func(), 10000)}
	get := func(context.Context) (client.WithWatch, error) { return e.provider, nil }
	p.shadows = fanin.New(fanin.Options{
		Object: &vkv1alpha1.ShadowPod{}, List: func() client.ObjectList { return &vkv1alpha1.ShadowPodList{} }, Client: get,
		Changed: func(_, after client.Object) {
			if after != nil {
				p.work <- func() { p.shadow(after.(*vkv1alpha1.ShadowPod)) }
			}
		},
	})
	p.pods = fanin.New(fanin.Options{
		Object: &corev1.Pod{}, List: func() client.ObjectList { return &corev1.PodList{} }, Client: get,
		Changed: func(before, after client.Object) {
			if after == nil {
				if shadow, _ := p.shadows.Get(client.ObjectKeyFromObject(before)).(*vkv1alpha1.ShadowPod); shadow != nil {
					p.work <- func() { p.shadow(shadow) }
				}
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case do := <-p.work:
					do()
				}
			}
		})
	}
	e.t.Cleanup(func() { cancel(); working.Wait() })
	p.shadows.Add(ctx, remoteNS)
	p.pods.Add(ctx, remoteNS)
	return p
}

// holdReady keeps new pods from becoming Ready.
func (p *fakeProvider) holdReady(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = on
}

// holdEnds keeps pods that are deleted until endAll.
func (p *fakeProvider) holdEnds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = true
}

// endAll lets pods end, those of a namespace that are being deleted at once.
func (p *fakeProvider) endAll(namespace string) {
	p.mu.Lock()
	p.ending = false
	p.mu.Unlock()
	for _, one := range p.shadows.All(namespace) {
		p.shadow(one.(*vkv1alpha1.ShadowPod))
	}
}

func (p *fakeProvider) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending
}

func (p *fakeProvider) shadow(queued *vkv1alpha1.ShadowPod) {
	ctx, key := context.Background(), client.ObjectKeyFromObject(queued)
	deleted := p.isDeleted(queued.Name) // before the cache is read: losePod ends that once the cache lacks the ShadowPod
	shadow, _ := p.shadows.Get(key).(*vkv1alpha1.ShadowPod)
	if shadow == nil {
		return // it was deleted since it was queued
	}
	pod, _ := p.pods.Get(key).(*corev1.Pod)
	switch {
	case shadow.DeletionTimestamp != nil:
		if pod != nil && p.isHeld() {
			_ = p.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}) // it may be gone already
			return
		}
		if pod != nil {
			_ = p.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}) // it may be gone already
			return
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		_ = p.client.Patch(ctx, shadow.DeepCopy(), patch) // it may be gone already
	case pod == nil && !deleted:
		annotations := maps.Clone(shadow.Annotations)
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: shadow.Namespace, Name: shadow.Name, Labels: maps.Clone(shadow.Labels), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(shadow, vkv1alpha1.GroupVersion.WithKind("ShadowPod"))},
		}, Spec: *shadow.Spec.Pod.DeepCopy()}
		made.Spec.NodeName = "worker"
		if err := p.client.Create(ctx, made); err != nil {
			if !apierrors.IsAlreadyExists(err) {
				p.t.Logf("could not create the pod: %v", err)
			}
			return
		}
		p.mu.Lock()
		p.created = append(p.created, made.Annotations[labels.Fence])
		holding := p.holding
		p.mu.Unlock()
		if !holding {
			p.ready(made)
		}
	}
}

func (p *fakeProvider) isDeleted(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.deleted, name)
}

// ready sets the status of a pod to Ready.
func (p *fakeProvider) ready(pod *corev1.Pod) {
	now := metav1.Now()
	p.status(pod, corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.9.8.7", PodIPs: []corev1.PodIP{{IP: "10.9.8.7"}}, StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Image: "app:1", Ready: true, Started: new(true), ContainerID: "c://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}},
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readyAt[pod.Name] = time.Now()
}

// end sets the status of a pod to a terminal phase.
func (p *fakeProvider) end(pod *corev1.Pod, phase corev1.PodPhase, code int32) {
	conditions := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"},
	}
	p.status(pod, corev1.PodStatus{Phase: phase, Conditions: conditions, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", Image: "app:1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: "Completed",
			FinishedAt: metav1.Now(),
		}},
	}}})
}

func (p *fakeProvider) status(pod *corev1.Pod, status corev1.PodStatus) {
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		p.t.Error(err)
		return
	}
	if err := p.client.Status().Patch(context.Background(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, text)); err != nil {
		p.t.Logf("status of %s: %v", pod.Name, err)
	}
}
