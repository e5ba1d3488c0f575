// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// Options of the reflection of pods. Functions may be nil.
type Options struct {
	// Workers is the number of pods that are reconciled at once, in each direction.
	Workers int
	// HostIP is the address that pods report as that of their node.
	HostIP string
	// NodeName is the name of the node whose pods are sent to the peer.
	NodeName string
	// Translator shows the addresses of remote pods here; nil: they are not shown.
	Translator project.Translator
	// APIServer returns how remote pods reach the API server of this cluster. It is called only after SetTokens.
	APIServer func() (podspec.APIServer, error)
	// CheckNetwork: pods are Ready only while the clusters reach each other, as SetNetwork reports. Nothing is reported about them before its first call.
	CheckNetwork bool
	// UnreachableTimeout is how long the peer may be unreachable before the tolerations of its pods are extended. 0: 30 seconds.
	UnreachableTimeout time.Duration
	// StuckTimeout is for how long, beyond a grace period, a remote pod that has run may be stuck before it is replaced: its
	// node is lost, or no node takes it. 0: two minutes.
	StuckTimeout time.Duration
	// FailureLimit is how many pods may fail within ten minutes before Failing reports it. 0: failures.DefaultLimit.
	FailureLimit int
	// Referrers is called for each change of a local pod, which may refer to other objects.
	Referrers func(before, after client.Object)
	// Arrived is called when a ShadowPod or remote pod of a mapped namespace has changed, before enqueued pods are processed.
	Arrived func(before, after client.Object)
}

// Tokens are the tokens of remote pods.
type Tokens interface {
	// Ensure issues the first tokens of a pod whose ShadowPod is about to be created (shadow is nil). For an existing ShadowPod it only requeues the pod if
	// its tokens are missing. It reports its errors.
	Ensure(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) error
	// Changed is called when a local pod has changed, Forget when it is gone, Retry when the API server that may have caused failures is back.
	Changed(pod types.NamespacedName)
	Forget(pod types.UID)
	Retry(namespace string)
}

// Claims keeps the data of pods at the peer.
type Claims interface {
	// Held returns why a new pod cannot run in the peer yet; nil if it can. Requeue is called when the answer may have changed.
	Held(ctx context.Context, pod *corev1.Pod) error
	// RemoteName returns the name of the claim at the peer that has the data of a claim; false if there is none.
	RemoteName(namespace, claim string) (remote string, is bool)
}
