// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// Keys are keys of labels, annotations or taints. A key that ends in * stands for all keys with that prefix.
type Keys []string

// ParseKeys validates the keys of a command line flag.
func ParseKeys(patterns []string) (Keys, error) {
	var keys Keys
	for _, pattern := range patterns {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			return nil, errors.New("a key is empty: give a key, or the prefix of keys and a *")
		}
		if star := strings.IndexByte(pattern, '*'); star >= 0 && star != len(pattern)-1 {
			return nil, fmt.Errorf("key %q: a * is allowed only as the last character", pattern)
		}
		keys = append(keys, pattern)
	}
	return keys, nil
}

// Match reports whether a key is in the list.
func (k Keys) Match(key string) bool {
	for _, pattern := range k {
		if prefix, isPrefix := strings.CutSuffix(pattern, "*"); pattern == key || isPrefix && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Allowed is what the administrator of this cluster lets peers decide about their pods, beyond the defaults below. The zero value allows the
// defaults only.
type Allowed struct {
	// Labels and Annotations are keys of pods. Tolerations are keys of taints; no list allows the guarded ones.
	Labels, Annotations, Tolerations Keys
	// Tracing: ephemeral containers keep SYS_PTRACE. Namespaces with the Pod Security label of a level refuse it.
	Tracing bool
	// AlwaysPull: images are pulled each time, so that no pod runs what another one has brought to a node.
	AlwaysPull bool
}

// Components of a cluster take orders from labels and annotations: injectors of sidecars, plugins of networks and runtimes, autoscalers,
// schedulers. New ones appear all the time, and each has keys in a domain of its own. So the keys in domains that are allowed are listed, not
// those that are refused. Keys without a domain belong to users, whose Services select pods by them.
var (
	// plain are keys with which tools describe objects, and controllers of the peer mark their pods.
	plain = Keys{
		"liqo.io/*", "virtualkubelet.liqo.io/*", "app.kubernetes.io/*", "helm.sh/*", "meta.helm.sh/*",
		"apps.kubernetes.io/*", "batch.kubernetes.io/*", "controller.kubernetes.io/*", "deployment.kubernetes.io/*", "statefulset.kubernetes.io/*",
	}
	podAnnotationKeys = append(Keys{
		"kubectl.kubernetes.io/*", "checksum/*", "kubernetes.io/change-cause", "kubernetes.io/description", "kubernetes.io/limit-ranger",
		"container.apparmor.security.beta.kubernetes.io/*", // the Pod Security Standard checks their values
	}, plain...)
	sliceLabelKeys = append(Keys{"kubernetes.io/service-name", "endpointslice.kubernetes.io/*", corev1.IsHeadlessService}, plain...)
	// ofNode are labels that the API server copies to each pod from its node. They are not a user's, and the pod gets those of its node here.
	ofNode = Keys{"topology.kubernetes.io/*"}
	// lostNode are the taints of a node that does not answer. Their tolerations state for how long a pod stays there.
	lostNode = Keys{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
)

// kept reports whether metadata with this key stays: it has no domain, or is in one of the lists.
func kept(key string, lists ...Keys) bool {
	return !strings.Contains(key, "/") || slices.ContainsFunc(lists, func(keys Keys) bool { return keys.Match(key) })
}

func (a Allowed) Label(key string) bool { return kept(key, plain, a.Labels) }

// Kept reports whether pods have a label with this key in every provider, with the value that they have at home: no administrator has to allow it,
// and it is none of ours.
func Kept(key string) bool {
	return kept(key, plain) && !strings.HasPrefix(key, "liqo.io/") && !strings.HasPrefix(key, "virtualkubelet.liqo.io/")
}

// Doubtful reports whether only some providers let pods of peers have a label with this key. It is none that the API server copies from nodes.
func Doubtful(key string) bool { return !kept(key, plain, ofNode) }

func (a Allowed) Annotation(key string) bool { return kept(key, podAnnotationKeys, a.Annotations) }

// KeepsLabel and KeepsAnnotation report whether pods of peers keep a key at every provider, whatever its administrator allows besides.
func KeepsLabel(key string) bool { return Allowed{}.Label(key) }

// KeepsAnnotation: see KeepsLabel.
func KeepsAnnotation(key string) bool {
	return !Reserved(key) && Reach(key) == "" && Allowed{}.Annotation(key)
}

// Toleration reports whether pods of peers may tolerate taints with a key.
func (a Allowed) Toleration(key string) bool {
	return !isGuarded(key) && (lostNode.Match(key) || a.Tolerations.Match(key))
}

// LeftOut names, in a fixed order, what a ShadowPod asks for and its pod does not get because it is not allowed.
func LeftOut(shadow *vkv1alpha1.ShadowPod, allowed Allowed) (names []string) {
	for key := range shadow.Labels {
		if !allowed.Label(key) && !ofNode.Match(key) {
			names = append(names, "label "+key)
		}
	}
	for key := range shadow.Annotations {
		if !Reserved(key) && !allowed.Annotation(key) {
			names = append(names, "annotation "+key)
		}
	}
	for _, toleration := range shadow.Spec.Pod.Tolerations {
		// Kubernetes itself gives pods of DaemonSets tolerations of guarded taints, and no administrator can allow these.
		if !isGuarded(toleration.Key) && !allowed.Toleration(toleration.Key) {
			names = append(names, "toleration of "+toleration.Key)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// guarded are key prefixes of taints that keep pods of users away: from the control plane, from nodes that are cordoned or not ready for use,
// and from virtual nodes, because pods of peers are not passed on to other clusters.
var guarded = []string{"node-role.kubernetes.io/", corev1.TaintNodeUnschedulable, "node.cloudprovider.kubernetes.io/", labels.TaintVirtualNode}

// isGuarded reports whether a toleration of this key tolerates a guarded taint. One without key tolerates every taint.
func isGuarded(key string) bool {
	return key == "" || slices.ContainsFunc(guarded, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Reserved reports whether kubelets, kubectl or our controllers give the annotation a meaning.
func Reserved(key string) bool {
	return key == labels.ShadowPodRevision || key == labels.ShadowPodKeys || key == labels.ShadowPodSent || key == labels.DeletionPeriod ||
		key == labels.Architectures || key == labels.HomeDNS || key == labels.PodArchitecture ||
		key == corev1.LastAppliedConfigAnnotation || strings.HasPrefix(key, "kubernetes.io/config.")
}

// KeepsSliceLabel reports whether an EndpointSlice of a peer has a label with this key.
func KeepsSliceLabel(key string) bool { return kept(key, sliceLabelKeys) }
