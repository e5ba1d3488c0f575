// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/peerobjects"
	"liqo.io/liqo/internal/offloading/shadow"
)

// ShadowPodPath is the documented path. NewShadowPodPath adds the finalizer that keeps a new ShadowPod until its pod is gone, RemotePodPath removes the managed
// fields of the pod.
const (
	ShadowPodPath    = "/validate/shadowpods"
	NewShadowPodPath = "/mutate/shadowpods"
	RemotePodPath    = "/mutate/remote-pod"
)

// RemoteNamespaces returns the cluster ID of the peer that a namespace was created for; empty if it was created for none.
type RemoteNamespaces interface {
	Peer(ctx context.Context, namespace string) (string, error)
	// Accepted reports whether a peer may create pods in this cluster.
	Accepted(ctx context.Context, peer string) (bool, error)
}

// ShadowPodOptions of the webhook of ShadowPods.
type ShadowPodOptions struct {
	RemoteNamespaces RemoteNamespaces
	// Level is how much of a node pods of peers may reach.
	Level shadow.Level
	// Quota of peers; nil in tests only.
	Quota *Quota
	// Peers counts the objects of peers; nil in tests only.
	Peers *peerobjects.Ledger
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// RegisterShadowPod adds the webhooks of ShadowPods to a server.
func RegisterShadowPod(server webhook.Server, scheme *runtime.Scheme, o ShadowPodOptions) {
	server.Register(ShadowPodPath, &admission.Webhook{Handler: newShadowPod(scheme, o)})
	server.Register(NewShadowPodPath, &admission.Webhook{Handler: hold})
	server.Register(RemotePodPath, &admission.Webhook{Handler: dropRemote})
}

type shadowPod struct {
	options ShadowPodOptions
	decoder admission.Decoder
}

func newShadowPod(scheme *runtime.Scheme, o ShadowPodOptions) *shadowPod {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &shadowPod{options: o, decoder: admission.NewDecoder(scheme)}
}

// holdNew is the JSON patch of a new ShadowPod, which has no finalizer.
var holdNew = fmt.Appendf(nil, `[{"op":"add","path":"/metadata/finalizers","value":[%q]}]`, labels.FinalizerPodGone)

// hold gives a new ShadowPod our finalizer. Finalizers that it has are judged by Handle.
var hold = byMetadata(func(now *metav1.PartialObjectMetadata) bool { return len(now.Finalizers) == 0 }, holdNew)

// byMetadata patches what needs it, by its metadata. It reads nothing else: the API server has not yet compared a ShadowPod with its schema, so an amount in it
// may be one whose decoding takes hours.
func byMetadata(needs func(*metav1.PartialObjectMetadata) bool, patch []byte) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		var now metav1.PartialObjectMetadata
		if err := json.Unmarshal(request.Object.Raw, &now); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		answer := admission.Allowed("")
		if needs(&now) {
			answer.Patch, answer.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
		}
		return answer
	}
}

// Handle admits the creation or update of a ShadowPod. The webhook is not registered for deletions: those of a peer are always accepted, even
// while we are down.
func (w *shadowPod) Handle(ctx context.Context, request admission.Request) admission.Response {
	var now, before vkv1alpha1.ShadowPod
	if err := w.decoder.DecodeRaw(request.Object, &now); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var old *vkv1alpha1.ShadowPod
	if request.Operation == admissionv1.Update {
		old = &before
		if err := w.decoder.DecodeRaw(request.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		// Removing a finalizer from an object in deletion is always allowed. Its pod may run until the grace period ends, so its use stays counted.
		if now.DeletionTimestamp != nil && len(now.Finalizers) < len(old.Finalizers) && equality.Semantic.DeepEqual(old.Spec, now.Spec) {
			return admission.Allowed("")
		}
	}
	peer, err := w.options.RemoteNamespaces.Peer(ctx, request.Namespace)
	if err != nil {
		return admission.Errored(http.StatusServiceUnavailable, err)
	}
	if peer == "" {
		return admission.Denied(fmt.Sprintf("namespace %s was not created for a peer, so it has no ShadowPods", request.Namespace))
	}
	if old == nil {
		switch accepted, err := w.options.RemoteNamespaces.Accepted(ctx, peer); {
		case err != nil:
			return admission.Errored(http.StatusServiceUnavailable, err)
		case !accepted:
			return admission.Denied("this cluster does not let the peer use its resources; see spec.incomingPeeringEnabled of its ForeignCluster")
		}
	}
	if problem := w.judge(old, &now, peer); problem != "" {
		return admission.Denied(problem)
	}
	if w.options.Quota != nil && old == nil {
		switch problem, err := w.options.Quota.fits(peer, &now, w.options.Now()); {
		case err != nil:
			return admission.Errored(http.StatusServiceUnavailable, err)
		case problem != "":
			return admission.Denied(problem)
		}
	}
	if w.options.Quota != nil && old != nil && shadow.Resized(old, &now) {
		switch problem, err := w.options.Quota.grows(peer, &now); {
		case err != nil:
			return admission.Errored(http.StatusServiceUnavailable, err)
		case problem != "":
			return admission.Denied(problem)
		}
	}
	return w.options.Peers.Review(request) // pods that have ended use nothing of a grant, but their ShadowPods stay
}

// judge returns in one sentence why the object is refused; nothing if it is valid. old is nil for a new object.
func (w *shadowPod) judge(old, now *vkv1alpha1.ShadowPod, peer string) string {
	if problem := shadow.Check(now, peer, w.options.Level); problem != "" {
		return problem
	}
	if problem := shadow.CheckFinalizers(old, now); problem != "" || old == nil {
		return problem
	}
	return shadow.CheckUpdate(old, now)
}
