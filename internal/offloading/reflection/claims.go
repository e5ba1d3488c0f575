// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
)

// Claims keeps the data of pods at the peer. Another package implements it; the reflection has it follow the offloaded namespaces, and asks it about pods.
type Claims interface {
	// Start follows a namespace and its remote namespace until ctx ends or Stop is called.
	Start(ctx context.Context, namespace, remote string)
	Stop(namespace, remote string)
	// Held returns why a new pod cannot run in the peer yet; nil if it can. PodsOf is called when the answer may have changed.
	Held(ctx context.Context, pod *corev1.Pod) error
	// RemoteName returns the name of the claim at the peer that has the data of a claim; false if there is none.
	RemoteName(namespace, claim string) (remote string, is bool)
}

const claimKind = "PersistentVolumeClaim"

// Attach sets what keeps the data of pods, before Run.
func (e *Engine) Attach(claims Claims) { e.claims = claims }

// LocalClient is the client of this cluster.
func (e *Engine) LocalClient() client.WithWatch { return e.local }

// Client waits until the peer is reachable, and returns its client.
func (e *Engine) Client(ctx context.Context) (client.WithWatch, error) {
	return e.remote.waitForClient(ctx)
}

// Local returns the local namespace of a remote one; false if it has none.
func (e *Engine) Local(remote string) (name string, offloaded bool) {
	if one := e.mappings.remote(remote); one != nil {
		return one.Local, true
	}
	return "", false
}

// Labels returns the labels of the remote copy of a claim.
func (e *Engine) Labels(claim client.Object) map[string]string {
	m := e.options.Mapping
	m.Skip = e.declined.skip(m.Skip, time.Now())
	return m.Labels(claim)
}

// Declined reports whether the peer refused nothing but labels of a claim, which Labels leaves out from now on.
func (e *Engine) Declined(claim client.Object, err error) bool {
	if !e.declined.learn(claim, err, time.Now()) {
		return false
	}
	e.recorder.failed(claim, claimKind, reasonIncomplete, e.declined.of(claim))
	return true
}

// Report writes a warning about a claim, once per repeatInterval as long as it does not change. Resolved forgets it.
func (e *Engine) Report(about client.Object, reason string, err error) {
	e.recorder.failed(about, claimKind, reason, err)
}

// Resolved forgets the last warning about an object.
func (e *Engine) Resolved(about client.Object) { e.recorder.succeeded(about) }

// PodsOf looks at the pods of a namespace again: what keeps their data has changed.
func (e *Engine) PodsOf(namespace string) {
	if e.pods == nil {
		return
	}
	for _, pod := range e.pods.local.All(namespace) {
		e.pods.outbound.add(client.ObjectKeyFromObject(pod))
	}
}

// held returns why a new pod must wait for its data.
func (p *pods) held(ctx context.Context, local *corev1.Pod) error {
	if p.engine.claims == nil {
		return nil
	}
	return p.engine.claims.Held(ctx, local)
}

// withClaims has a pod use the claims of the peer that have its data. Those that Kubernetes made here for its ephemeral volumes become ordinary ones: in the
// peer, Kubernetes would make others, which belong to the pod there.
func (p *pods) withClaims(local *corev1.Pod, intent *vkapply.ShadowPodApplyConfiguration) {
	if p.engine.claims == nil {
		return
	}
	for i := range intent.Spec.Pod.Volumes {
		volume := &intent.Spec.Pod.Volumes[i]
		switch {
		case volume.Ephemeral != nil:
			if remote, is := p.engine.claims.RemoteName(local.Namespace, local.Name+"-"+volume.Name); is {
				volume.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: remote}}
			}
		case volume.PersistentVolumeClaim != nil:
			if remote, is := p.engine.claims.RemoteName(local.Namespace, volume.PersistentVolumeClaim.ClaimName); is && remote != volume.PersistentVolumeClaim.ClaimName {
				renamed := *volume.PersistentVolumeClaim // shared with the local pod
				renamed.ClaimName, volume.PersistentVolumeClaim = remote, &renamed
			}
		}
	}
}
