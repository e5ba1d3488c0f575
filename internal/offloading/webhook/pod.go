// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's questions about pods of offloaded namespaces, and about NamespaceOffloadings. pod.go puts
// into a new pod where it may run, strategy.go decides that from values. namespaceoffloading.go refuses what can never work with a
// sentence that says why, and mark.go makes pods of the namespace pass here before the one who offloads it hears that it worked:
// what is applied after the NamespaceOffloading, even in the same command, is placed by it.
//
// It must not know which clusters there are, nor how they are. Its proofs are the tables of strategy_test.go and
// namespaceoffloading_test.go, and TestOffloadingRace in deployments/liqo, against a real API server with the chart's own configuration.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// Paths of the webhooks; those of pods and NamespaceOffloadings are documented.
const (
	PodPath        = "/mutate/pod"
	OffloadingPath = "/validate/namespace-offloading"
	ProbePath      = "/mutate/label-probe"
)

// Options is what the webhooks need to know.
type Options struct {
	// Cached knows NamespaceOffloadings; Live asks the API server.
	Cached client.Reader
	Live   client.Reader
	// Client writes.
	Client client.Client
	// Namespace is where this product is installed.
	Namespace string
}

// Register adds the webhooks of offloading to a server.
func Register(server webhook.Server, scheme *runtime.Scheme, o Options) {
	news := &news{all: map[string]version{}}
	decoder := admission.NewDecoder(scheme)
	pods := &pods{options: o, news: news, decoder: decoder}
	offloadings := &offloadings{options: o, news: news, decoder: decoder}
	server.Register(PodPath, &admission.Webhook{Handler: admission.HandlerFunc(pods.handle)})
	server.Register(OffloadingPath, &admission.Webhook{Handler: admission.HandlerFunc(offloadings.handle)})
	server.Register(ProbePath, &admission.Webhook{Handler: admission.HandlerFunc(answerProbe)})
}

// version of a NamespaceOffloading that is about to be written.
type version struct {
	uid        types.UID
	generation int64
	until      time.Time
}

// newsTime is how long a write may be on its way from here, through the API server, to our cache.
const newsTime = 30 * time.Second

// news are the versions that a cache must have before it is believed.
type news struct {
	mu  sync.Mutex
	all map[string]version // by namespace
}

func (n *news) tell(offloading *offloadingv1alpha1.NamespaceOffloading, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace, one := range n.all {
		if now.After(one.until) {
			delete(n.all, namespace)
		}
	}
	n.all[offloading.Namespace] = version{uid: offloading.UID, generation: offloading.Generation, until: now.Add(newsTime)}
}

// knows tells whether the object is as new as what was admitted here.
func (n *news) knows(offloading *offloadingv1alpha1.NamespaceOffloading, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, is := n.all[offloading.Namespace]
	if !is || now.After(last.until) {
		return true
	}
	if last.uid == offloading.UID && offloading.Generation >= last.generation {
		delete(n.all, offloading.Namespace)
		return true
	}
	return false
}

type pods struct {
	options Options
	news    *news
	decoder admission.Decoder
}

func (p *pods) handle(ctx context.Context, request admission.Request) admission.Response {
	var pod corev1.Pod
	if err := p.decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	offloading, err := p.offloading(ctx, request.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return admission.Denied(fmt.Sprintf("namespace %s is marked as offloaded and has no NamespaceOffloading; a mark of Liqo's own goes in some seconds, "+
			"another one with: kubectl label namespace %[1]s liqo.io/scheduling-enabled-", request.Namespace))
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read the NamespaceOffloading of %s: %w", request.Namespace, err))
	}
	// The patch is the difference between what we understand before and after: what we do not know of a pod stays as it is.
	before, err := json.Marshal(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if offloading.DeletionTimestamp == nil && tooMuch(&pod.Spec, &offloading.Spec) {
		return admission.Denied(fmt.Sprintf("the required node affinity of the pod and the clusterSelector of namespace %s, each term with each, are more than %d kB: make one of them shorter",
			request.Namespace, mostAffinity>>10))
	}
	if offloading.DeletionTimestamp != nil || !place(&pod.Spec, &offloading.Spec) {
		return admission.Allowed("")
	}
	after, err := json.Marshal(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(before, after)
}

// offloading of a namespace. The cache may be behind what its users have written just now: then the API server is asked.
func (p *pods) offloading(ctx context.Context, namespace string) (*offloadingv1alpha1.NamespaceOffloading, error) {
	key := client.ObjectKey{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}
	var found offloadingv1alpha1.NamespaceOffloading
	err := p.options.Cached.Get(ctx, key, &found)
	if err == nil && found.DeletionTimestamp == nil && found.Spec.PodOffloadingStrategy != offloadingv1alpha1.PodsLocal && p.news.knows(&found, time.Now()) {
		return &found, nil
	}
	var live offloadingv1alpha1.NamespaceOffloading
	if err := p.options.Live.Get(ctx, key, &live); err != nil {
		return nil, err
	}
	return &live, nil
}
