// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/peering/grant"
)

const (
	// maxSlices is how many slices of one tenant are answered with resources: each is a virtual node there, and
	// work for us here.
	maxSlices = 16
	// reasonTooManySlices: the tenant has maxSlices older ones.
	reasonTooManySlices = "TooManySlices"
	// virtualProvisioner makes volumes of our own storage class, which stands for the real ones of a peer.
	virtualProvisioner = "liqo.io/storage"

	defaultStorageClass  = "storageclass.kubernetes.io/is-default-class"
	defaultStorageBeta   = "storageclass.beta.kubernetes.io/is-default-class"
	defaultIngressClass  = networkingv1.AnnotationIsDefaultIngressClass
	annotationTrue       = "true"
	wholeClusterSentence = "the sharing percentage of the provider"
	onePeerSentence      = "the percentage that the provider set for this cluster"
)

// sliceFacts is all that an answer depends on, besides the slice itself.
type sliceFacts struct {
	peer       *discoveryv1alpha1.ForeignCluster // nil: there is none, which has been proven
	clusterID  string                            // from the tenant namespace, never from the slice
	incoming   bool                              // what Auto means
	percentage int                               // of the cluster
	capacity   grant.Capacity
	plugin     *pluginFacts // nil: none is configured
	labels     map[string]string
	storage    []sharingv1alpha1.StorageClass
	ingress    []sharingv1alpha1.IngressClass
}

// pluginFacts is what the resource plugin said.
type pluginFacts struct {
	resources corev1.ResourceList
	failure   string // if not empty, there is no answer, and this says why
}

// isSliceCopy tells a peer's request from our own requests to the same peer, which are in the same namespace. Our
// finalizer counts, too: a peer could take the label away and leave the object behind for ever.
func isSliceCopy(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.Labels[labels.Replication] != annotationTrue &&
		(slice.Labels[labels.Replicated] == annotationTrue || slices.Contains(slice.Finalizers, labels.FinalizerGrant))
}

// sortSlices puts the oldest first.
func sortSlices(all []*sharingv1alpha1.ResourceSlice) {
	slices.SortFunc(all, func(a, b *sharingv1alpha1.ResourceSlice) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// sliceAsk is a request, and what its peer was last told, which may be newer than the cached request.
type sliceAsk struct {
	slice *sharingv1alpha1.ResourceSlice
	told  *sharingv1alpha1.ResourceSliceStatus
}

// sliceAnswers decides on all live slices of one tenant, the oldest first. The times of conditions are left out.
func sliceAnswers(facts *sliceFacts, all []sliceAsk) []sharingv1alpha1.ResourceSliceStatus {
	answers := make([]sharingv1alpha1.ResourceSliceStatus, len(all))
	if reason, message := refusal(facts); reason != "" {
		for i := range all {
			answers[i] = refused(all[i].slice, reason, message)
		}
		return answers
	}
	for i := maxSlices; i < len(all); i++ {
		answers[i] = refused(all[i].slice, reasonTooManySlices,
			fmt.Sprintf("a cluster may have %d resource slices at a time, and there are %d older ones; delete one that is not needed", maxSlices, maxSlices))
	}
	all = all[:min(len(all), maxSlices)]

	total, why := sliceTotal(facts)
	wishes := make([]corev1.ResourceList, len(all))
	for i, ask := range all {
		wishes[i] = ask.slice.Spec.Resources
	}
	parts := grant.Divide(total, wishes)
	for i, ask := range all {
		if facts.plugin != nil && facts.plugin.failure != "" {
			answers[i] = unanswered(facts, ask)
		} else {
			answers[i] = accepted(facts, ask.slice, parts[i], why)
		}
	}
	return answers
}

// refusal says why a peer gets nothing, if so.
func refusal(facts *sliceFacts) (reason, message string) {
	peer := facts.peer
	switch {
	case peer == nil:
		return sharingv1alpha1.ReasonProviderWithdrawing, "the provider has no record of this peering any more; unpeer, then peer again"
	case peer.DeletionTimestamp != nil:
		return sharingv1alpha1.ReasonProviderWithdrawing, "the provider is ending this peering; ask its administrator, or unpeer"
	case peer.Spec.IncomingPeeringEnabled == discoveryv1alpha1.PeeringNo:
		return sharingv1alpha1.ReasonIncomingDisabled,
			"the provider does not let this cluster use its resources; its administrator can change that: " +
				"spec.incomingPeeringEnabled of the ForeignCluster there is No"
	case peer.Spec.IncomingPeeringEnabled != discoveryv1alpha1.PeeringYes && !facts.incoming:
		return sharingv1alpha1.ReasonIncomingDisabled,
			"the provider lets no cluster use its resources by default; its administrator can change that: " +
				"spec.incomingPeeringEnabled of the ForeignCluster there must be Yes"
	}
	return "", ""
}

// sliceTotal is what the peer gets, all slices together, and where the number comes from.
func sliceTotal(facts *sliceFacts) (corev1.ResourceList, string) {
	if facts.plugin != nil {
		return facts.plugin.resources, "as the resource plugin of the provider says"
	}
	percentage, source := facts.percentage, wholeClusterSentence
	if text, there := facts.peer.Annotations[labels.SharingPercentage]; there {
		own, err := grant.ParsePercentage(text)
		if err == nil {
			percentage, source = own, onePeerSentence
		} else {
			source = fmt.Sprintf("%s; %s cannot be used: %v", wholeClusterSentence, onePeerSentence, err)
		}
	}
	return grant.Share(facts.capacity.Free(facts.clusterID), percentage),
		fmt.Sprintf("%d%% of what is free on the nodes: %s", percentage, source)
}

func accepted(facts *sliceFacts, slice *sharingv1alpha1.ResourceSlice, resources corev1.ResourceList, why string) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted, Resources: resources}
	describe(facts, &answer)
	missing := slices.DeleteFunc([]string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}, func(name string) bool {
		left := resources[corev1.ResourceName(name)]
		return left.Sign() > 0
	})
	if len(missing) > 0 {
		return withGranted(answer, slice, metav1.ConditionFalse, sharingv1alpha1.ReasonNothingToShare,
			fmt.Sprintf("nothing to start pods with: no %s is left for this slice (%s)", strings.Join(missing, " and no "), why))
	}
	return withGranted(answer, slice, metav1.ConditionTrue, sharingv1alpha1.ReasonResourcesGranted, why)
}

// unanswered keeps what the peer has: a silent plugin takes nothing away.
func unanswered(facts *sliceFacts, ask sliceAsk) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SlicePending}
	granted, message := metav1.ConditionFalse, facts.plugin.failure+"; nothing is granted until it answers"
	if ask.told.Phase == sharingv1alpha1.SliceAccepted {
		answer.Phase, answer.Resources = ask.told.Phase, ask.told.Resources
		message = facts.plugin.failure + "; what it last granted stays granted"
		if before := meta.FindStatusCondition(ask.told.Conditions, sharingv1alpha1.ConditionGranted); before != nil {
			granted = before.Status
		}
	}
	describe(facts, &answer)
	return withGranted(answer, ask.slice, granted, sharingv1alpha1.ReasonPluginFailed, message)
}

func refused(slice *sharingv1alpha1.ResourceSlice, reason, message string) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceRefused}
	return withGranted(answer, slice, metav1.ConditionFalse, reason, message)
}

// describe adds what the nodes are like. Images are left out: a busy node lists fifty with their digests, all of
// them would be written and carried across at each pull, and a scheduler gains nothing, because which node of the
// provider has the image is not the consumer's to choose.
func describe(facts *sliceFacts, answer *sharingv1alpha1.ResourceSliceStatus) {
	answer.Labels = facts.labels
	answer.Architectures, answer.OperatingSystems = facts.capacity.Architectures, facts.capacity.OperatingSystems
	answer.StorageClasses, answer.IngressClasses = facts.storage, facts.ingress
}

func withGranted(answer sharingv1alpha1.ResourceSliceStatus, slice *sharingv1alpha1.ResourceSlice, status metav1.ConditionStatus, reason, message string,
) sharingv1alpha1.ResourceSliceStatus {
	answer.ObservedGeneration = slice.Generation
	answer.Conditions = []metav1.Condition{{
		Type: sharingv1alpha1.ConditionGranted, Status: status, Reason: reason, Message: message, ObservedGeneration: slice.Generation,
	}}
	return answer
}

// isHeld says whether the end of a slice must pass by us: of all that a peering hangs on, also those that are
// refused for now, but not of those beyond the limit, and not of a peering that is being taken down anyway.
func isHeld(answer *sharingv1alpha1.ResourceSliceStatus) bool {
	reason := answer.Conditions[0].Reason
	return reason != reasonTooManySlices && reason != sharingv1alpha1.ReasonProviderWithdrawing
}

// sliceNews says how urgent it is to tell a peer.
type sliceNews int

const (
	nothingNew sliceNews = iota
	smallNews            // can wait for the next refresh
	bigNews
)

// compareSlice compares what a peer was told with what is true now.
func compareSlice(told, now *sharingv1alpha1.ResourceSliceStatus, threshold int) sliceNews {
	before := meta.FindStatusCondition(told.Conditions, sharingv1alpha1.ConditionGranted)
	after := meta.FindStatusCondition(now.Conditions, sharingv1alpha1.ConditionGranted)
	switch {
	case before == nil, before.Status != after.Status, before.Reason != after.Reason, before.Message != after.Message,
		before.ObservedGeneration != after.ObservedGeneration:
		return bigNews
	case told.Phase != now.Phase, told.ObservedGeneration != now.ObservedGeneration,
		!maps.Equal(told.Labels, now.Labels),
		!slices.Equal(told.Architectures, now.Architectures), !slices.Equal(told.OperatingSystems, now.OperatingSystems),
		!slices.Equal(told.StorageClasses, now.StorageClasses), !slices.Equal(told.IngressClasses, now.IngressClasses):
		return bigNews
	case grant.Equal(told.Resources, now.Resources):
		return nothingNew
	case grant.Differs(told.Resources, now.Resources, threshold):
		return bigNews
	}
	return smallNews
}

// sharedStorageClasses are those that a peer may ask volumes of: all but ours, which are its own already. Of
// several defaults the newest is used, as by Kubernetes.
func sharedStorageClasses(all []storagev1.StorageClass) []sharingv1alpha1.StorageClass {
	var shared []sharingv1alpha1.StorageClass
	var preferred *storagev1.StorageClass
	for i := range all {
		class := &all[i]
		if class.Provisioner == virtualProvisioner || class.DeletionTimestamp != nil {
			continue
		}
		shared = append(shared, sharingv1alpha1.StorageClass{StorageClassName: class.Name})
		if class.Annotations[defaultStorageClass] == annotationTrue || class.Annotations[defaultStorageBeta] == annotationTrue {
			if preferred == nil || newer(&class.ObjectMeta, &preferred.ObjectMeta) {
				preferred = class
			}
		}
	}
	slices.SortFunc(shared, func(a, b sharingv1alpha1.StorageClass) int {
		return cmp.Compare(a.StorageClassName, b.StorageClassName)
	})
	for i := range shared {
		shared[i].Default = preferred != nil && shared[i].StorageClassName == preferred.Name
	}
	return shared
}

// newer orders by age, then by name.
func newer(a, b *metav1.ObjectMeta) bool {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

func sharedIngressClasses(all []networkingv1.IngressClass) []sharingv1alpha1.IngressClass {
	var shared []sharingv1alpha1.IngressClass
	for i := range all {
		class := &all[i]
		if class.DeletionTimestamp == nil {
			shared = append(shared, sharingv1alpha1.IngressClass{
				IngressClassName: class.Name, Default: class.Annotations[defaultIngressClass] == annotationTrue,
			})
		}
	}
	slices.SortFunc(shared, func(a, b sharingv1alpha1.IngressClass) int {
		return cmp.Compare(a.IngressClassName, b.IngressClassName)
	})
	return shared
}

// onlyIncoming says whether a foreign cluster exists only because its peer uses us: then it goes with that use.
func onlyIncoming(peer *discoveryv1alpha1.ForeignCluster) bool {
	return peer.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming &&
		peer.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes
}
