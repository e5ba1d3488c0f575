// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

// Documented paths of the webhooks. The server puts a secret segment before them.
const (
	PodPath        = "/mutate/pod"
	OffloadingPath = "/validate/namespace-offloading"
)

// Options of the webhooks.
type Options struct {
	// Cached has NamespaceOffloadings and Nodes; Live reads from the API server.
	Cached client.Reader
	Live   client.Reader
	// Namespace in which Liqo is installed.
	Namespace string
	// Claims returns why the claims of a new pod keep it in this cluster; nil: none ever does.
	Claims func(ctx context.Context, namespace string, pod *corev1.PodSpec) (reasons []string, err error)
	// Places returns the virtual nodes whose clusters run the pods of an offloaded namespace, and those whose clusters do not, although its strategy and
	// selector lead there; nil: there are none of these.
	Places func(ctx context.Context, offloading *offloadingv1alpha1.NamespaceOffloading) (run, vain []string, err error)
}

// Register adds the webhooks of offloading to a server.
func Register(server webhook.Server, scheme *runtime.Scheme, o Options) {
	admitted := &admittedVersions{all: map[string]version{}}
	decoder := admission.NewDecoder(scheme)
	pods := &pods{options: o, admitted: admitted, decoder: decoder}
	offloadings := &offloadings{options: o, admitted: admitted, decoder: decoder}
	server.Register(PodPath, &admission.Webhook{Handler: admission.HandlerFunc(pods.handle)})
	server.Register(DaemonSetPath, &admission.Webhook{Handler: admission.HandlerFunc(pods.daemonSet)})
	server.Register(OffloadingPath, &admission.Webhook{Handler: admission.HandlerFunc(offloadings.handle)})
}

// version of a NamespaceOffloading that is about to be written.
type version struct {
	uid        types.UID
	generation int64
	until      time.Time
}

// cacheDelay bounds how long an admitted write takes through the API server to our cache.
const cacheDelay = 30 * time.Second

// admittedVersions are the versions of NamespaceOffloadings that this webhook admitted. An older object in the cache is stale.
type admittedVersions struct {
	mu  sync.Mutex
	all map[string]version // by namespace
}

func (n *admittedVersions) record(offloading *offloadingv1alpha1.NamespaceOffloading, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace, entry := range n.all {
		if now.After(entry.until) {
			delete(n.all, namespace)
		}
	}
	n.all[offloading.Namespace] = version{uid: offloading.UID, generation: offloading.Generation, until: now.Add(cacheDelay)}
}

// current reports whether the object is as new as the version admitted here.
func (n *admittedVersions) current(offloading *offloadingv1alpha1.NamespaceOffloading, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.all[offloading.Namespace]
	if !ok || now.After(last.until) {
		return true
	}
	if last.uid == offloading.UID && offloading.Generation >= last.generation {
		delete(n.all, offloading.Namespace)
		return true
	}
	return false
}

type pods struct {
	options  Options
	admitted *admittedVersions
	decoder  admission.Decoder
}

func (p *pods) handle(ctx context.Context, request admission.Request) admission.Response {
	var pod corev1.Pod
	if err := p.decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	offloading, err := p.offloading(ctx, request.Namespace)
	switch {
	case apierrors.IsNotFound(err): // not offloaded, whatever the labels of the namespace claim: a wrong label must not stop its pods
		return admission.Allowed("")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read the NamespaceOffloading of %s: %w", request.Namespace, err))
	}
	if offloading.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	if reason := p.forRealNode(ctx, request.Namespace, &pod, &offloading.Spec); reason != "" {
		return admission.Denied(reason)
	}
	if tooMuch(&pod.Spec, &offloading.Spec) {
		return admission.Denied(fmt.Sprintf("the required node affinity of the pod, combined term by term with the clusterSelector of namespace "+
			"%s, exceeds %d kB: make one of them shorter",
			request.Namespace, maxAffinity>>10))
	}
	reasons, err := p.claims(ctx, request.Namespace, &pod.Spec, &offloading.Spec)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("whether the pod may leave this cluster with its claims is not known: %w", err))
	}
	avoid, err := p.avoided(ctx, &pod, offloading)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("which clusters run the pods of namespace %s is not known: %w", request.Namespace, err))
	}
	kept := len(reasons) > 0 && !onlyVirtual(&pod.Spec, &offloading.Spec)
	answer := patch(&pod, func() bool {
		placed, trimmed := kept && avoidVirtualNodes(&pod.Spec) || !kept && place(&pod.Spec, &offloading.Spec, avoid...), withoutManagedFields(&pod, &offloading.Spec)
		return placed || trimmed
	})
	if len(reasons) > 0 && !kept && pod.Spec.NodeName == "" {
		answer.Warnings = append(answer.Warnings, "the pod may run in other clusters only, where it cannot start: "+
			strings.Join(reasons, ". ")+". If the providers have that storage by themselves, annotate the claim with "+labels.ExternalClaim)
	}
	return answer
}

// avoided returns the nodes on which a pod would wait in vain. Where it fits no other one, it waits there: it runs once the cluster is chosen.
func (p *pods) avoided(ctx context.Context, pod *corev1.Pod, offloading *offloadingv1alpha1.NamespaceOffloading) (nodes []string, err error) {
	if p.options.Places == nil || offloading.Spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal ||
		pod.Spec.NodeName != "" || nodeOfDaemonSet(pod) != "" || everyChosen(offloading) {
		return nil, nil
	}
	run, vain, err := p.options.Places(ctx, offloading)
	if err != nil || len(vain) == 0 {
		return nil, err
	}
	var all corev1.NodeList
	if err := p.options.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if !fitsElsewhere(pod, all.Items, run, offloading.Spec.PodOffloadingStrategy) {
		return nil, nil
	}
	return vain, nil
}

// everyChosen reports whether a namespace is offloaded to all clusters, as its controller has found: then there is nothing to look for.
func everyChosen(offloading *offloadingv1alpha1.NamespaceOffloading) bool {
	status := &offloading.Status
	if status.ObservedGeneration != offloading.Generation || len(status.RemoteNamespacesConditions) == 0 {
		return false
	}
	for _, conditions := range status.RemoteNamespacesConditions {
		for _, condition := range conditions {
			if condition.Type == offloadingv1alpha1.ConditionOffloadingRequired && condition.Status != corev1.ConditionTrue ||
				condition.Reason == offloadingv1alpha1.ReasonCreationLoopBackOff {
				return false
			}
		}
	}
	return true
}

// claims returns why the claims of a pod keep it in this cluster.
func (p *pods) claims(
	ctx context.Context, namespace string, pod *corev1.PodSpec, spec *offloadingv1alpha1.NamespaceOffloadingSpec,
) (reasons []string, err error) {
	if p.options.Claims == nil || spec.PodOffloadingStrategy == offloadingv1alpha1.PodsLocal {
		return nil, nil
	}
	return p.options.Claims(ctx, namespace, pod)
}

// offloading returns the NamespaceOffloading of a namespace. If the cache may be behind a write of a user, it reads from the API server.
func (p *pods) offloading(ctx context.Context, namespace string) (*offloadingv1alpha1.NamespaceOffloading, error) {
	key := client.ObjectKey{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}
	var found offloadingv1alpha1.NamespaceOffloading
	err := p.options.Cached.Get(ctx, key, &found)
	if err == nil && found.DeletionTimestamp == nil && found.Spec.PodOffloadingStrategy != offloadingv1alpha1.PodsLocal && p.admitted.current(&found, time.Now()) {
		return &found, nil
	}
	var live offloadingv1alpha1.NamespaceOffloading
	if err := p.options.Live.Get(ctx, key, &live); err != nil {
		return nil, err
	}
	return &live, nil
}
