// SPDX-License-Identifier: Apache-2.0

package resourceslice

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
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/peering/admission"
	"liqo.io/liqo/internal/peering/grant"
	"liqo.io/liqo/internal/peering/reach"
)

const (
	// maxSlices is how many slices of one tenant get resources: each is a virtual node in the consumer, and load here.
	maxSlices = 16
	// MaxAnswered is how many slices of one tenant get an answer, those that are refused included: each answer is a write here.
	MaxAnswered = 2 * maxSlices
	// virtualProvisioner is the provisioner of our virtual storage class, which represents the real ones of a peer.
	virtualProvisioner = "liqo.io/storage"

	defaultIngressClass  = networkingv1.AnnotationIsDefaultIngressClass
	wholeClusterSentence = "the sharing percentage of the provider"
	onePeerSentence      = "the percentage that the provider set for this cluster"
)

// sliceFacts is everything that an answer depends on, besides the slice.
type sliceFacts struct {
	peer       *discoveryv1alpha1.ForeignCluster // nil: the API server has none
	clusterID  string                            // from the tenant namespace, never from the slice
	incoming   discoveryv1alpha1.PeeringEnabled  // what Auto means
	percentage int                               // of the cluster
	capacity   grant.Capacity
	plugin     *pluginFacts // nil: none is configured
	labels     map[string]string
	storage    []sharingv1alpha1.StorageClass
	ingress    []sharingv1alpha1.IngressClass
}

// pluginFacts is the last answer of the resource plugin.
type pluginFacts struct {
	resources corev1.ResourceList
	failure   string // why there is no answer; empty if there is one
}

// sortSlices puts the oldest first.
func sortSlices(all []*sharingv1alpha1.ResourceSlice) {
	slices.SortFunc(all, func(a, b *sharingv1alpha1.ResourceSlice) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// sliceQuery is a request and the status last written to it, which may be newer than the cached one.
type sliceQuery struct {
	slice *sharingv1alpha1.ResourceSlice
	last  *sharingv1alpha1.ResourceSliceStatus
}

// sliceAnswers computes the statuses of all live slices of one tenant, the oldest first. It leaves out condition times.
func sliceAnswers(facts *sliceFacts, all []sliceQuery) []sharingv1alpha1.ResourceSliceStatus {
	answers := make([]sharingv1alpha1.ResourceSliceStatus, len(all))
	if reason, message := refusal(facts); reason != "" {
		for i := range all {
			answers[i] = refused(all[i].slice, reason, message)
		}
		return answers
	}
	for i := maxSlices; i < len(all); i++ {
		answers[i] = refused(all[i].slice, sharingv1alpha1.ReasonTooManySlices,
			fmt.Sprintf("a cluster may have at most %d resource slices, and there are %d older ones; delete one that is not needed", maxSlices, maxSlices))
	}
	all = all[:min(len(all), maxSlices)]

	total, why := sliceTotal(facts)
	requested := make([]corev1.ResourceList, len(all))
	for i, query := range all {
		requested[i] = query.slice.Spec.Resources
	}
	parts := grant.Divide(total, requested)
	for i, query := range all {
		if facts.plugin != nil && facts.plugin.failure != "" {
			answers[i] = unanswered(facts, query)
		} else {
			answers[i] = accepted(facts, query.slice, parts[i], why)
		}
	}
	return answers
}

// refusal returns why a peer gets nothing, or empty strings.
func refusal(facts *sliceFacts) (reason, message string) {
	peer := facts.peer
	switch {
	case peer == nil:
		return sharingv1alpha1.ReasonProviderWithdrawing, "the provider has no record of this peering any more; unpeer, then peer again"
	case peer.DeletionTimestamp != nil:
		return sharingv1alpha1.ReasonProviderWithdrawing, "the provider is ending this peering; ask its administrator, or unpeer"
	}
	switch decided := admission.Decide(peer.Spec.IncomingPeeringEnabled, facts.incoming); decided.State {
	case discoveryv1alpha1.IncomingAccepted:
		// All that the peer gets follows from the decision in the status, which may have to wait although the spec accepts.
		if now := peer.Status.Incoming; now != nil && now.State == discoveryv1alpha1.IncomingWaiting {
			return sharingv1alpha1.ReasonIncomingWaiting, now.Message
		}
		return "", ""
	case discoveryv1alpha1.IncomingWaiting:
		return sharingv1alpha1.ReasonIncomingWaiting, decided.Message
	default:
		return sharingv1alpha1.ReasonIncomingDisabled, decided.Message
	}
}

// sliceTotal returns what the peer gets, all slices together, and where the number comes from.
func sliceTotal(facts *sliceFacts) (corev1.ResourceList, string) {
	if facts.plugin != nil {
		return facts.plugin.resources, "granted by the resource plugin of the provider"
	}
	percentage, source := facts.percentage, wholeClusterSentence
	if text, found := facts.peer.Annotations[labels.SharingPercentage]; found {
		own, err := grant.ParsePercentage(text)
		if err == nil {
			percentage, source = own, onePeerSentence
		} else {
			source = fmt.Sprintf("%s; %s is not valid: %v", wholeClusterSentence, onePeerSentence, err)
		}
	}
	return facts.capacity.Grant(facts.clusterID, percentage),
		fmt.Sprintf("%d%% of what is free on the nodes: %s", percentage, source)
}

func accepted(facts *sliceFacts, slice *sharingv1alpha1.ResourceSlice, resources corev1.ResourceList, why string) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceAccepted, Resources: resources}
	describe(facts, &answer)
	if facts.plugin == nil && facts.capacity.Nodes == 0 {
		return withGranted(answer, slice, metav1.ConditionFalse, sharingv1alpha1.ReasonNothingToShare,
			"no further pod can start: the provider has no Ready node that takes pods of this cluster; they are cordoned, for example, or set apart. Running pods stay")
	}
	missing := slices.DeleteFunc([]string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}, func(name string) bool {
		left := resources[corev1.ResourceName(name)]
		return left.Sign() > 0
	})
	if len(missing) > 0 {
		return withGranted(answer, slice, metav1.ConditionFalse, sharingv1alpha1.ReasonNothingToShare,
			fmt.Sprintf("no pod can start: no %s is left for this slice (%s)", strings.Join(missing, " and no "), why))
	}
	return withGranted(answer, slice, metav1.ConditionTrue, sharingv1alpha1.ReasonResourcesGranted, why)
}

// unanswered keeps the last grant: a plugin that fails takes nothing away.
func unanswered(facts *sliceFacts, query sliceQuery) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SlicePending}
	granted, message := metav1.ConditionFalse, facts.plugin.failure+"; nothing is granted until it answers"
	if query.last.Phase == sharingv1alpha1.SliceAccepted {
		answer.Phase, answer.Resources = query.last.Phase, query.last.Resources
		message = facts.plugin.failure + "; the last grant stays"
		if before := meta.FindStatusCondition(query.last.Conditions, sharingv1alpha1.ConditionGranted); before != nil {
			granted = before.Status
		}
	}
	describe(facts, &answer)
	return withGranted(answer, query.slice, granted, sharingv1alpha1.ReasonPluginFailed, message)
}

func refused(slice *sharingv1alpha1.ResourceSlice, reason, message string) sharingv1alpha1.ResourceSliceStatus {
	answer := sharingv1alpha1.ResourceSliceStatus{Phase: sharingv1alpha1.SliceRefused}
	if reason == sharingv1alpha1.ReasonIncomingWaiting {
		answer.Phase = sharingv1alpha1.SliceManualActionRequired
	}
	return withGranted(answer, slice, metav1.ConditionFalse, reason, message)
}

// describe adds the properties of the nodes, without their images: a busy node lists fifty with their digests, and each
// pull would write and replicate them all. The consumer's scheduler gains nothing from them, because it does not choose
// the provider's node.
func describe(facts *sliceFacts, answer *sharingv1alpha1.ResourceSliceStatus) {
	answer.Labels = facts.labels
	answer.Architectures, answer.OperatingSystems = facts.capacity.Architectures, facts.capacity.OperatingSystems
	answer.StorageClasses, answer.IngressClasses = facts.storage, facts.ingress
	answer.ProxyWanted = reach.WantsProxy(facts.peer)
}

func withGranted(answer sharingv1alpha1.ResourceSliceStatus, slice *sharingv1alpha1.ResourceSlice, status metav1.ConditionStatus, reason, message string,
) sharingv1alpha1.ResourceSliceStatus {
	answer.ObservedGeneration = slice.Generation
	answer.Conditions = []metav1.Condition{{
		Type: sharingv1alpha1.ConditionGranted, Status: status, Reason: reason, Message: message, ObservedGeneration: slice.Generation,
	}}
	return answer
}

// needsFinalizer reports whether the slice gets our finalizer: every slice that keeps a peering alive, including those
// refused for now, but not those beyond the limit, nor those of a peering that this provider is ending.
func needsFinalizer(answer *sharingv1alpha1.ResourceSliceStatus) bool {
	reason := answer.Conditions[0].Reason
	return reason != sharingv1alpha1.ReasonTooManySlices && reason != sharingv1alpha1.ReasonProviderWithdrawing
}

// sliceChange is how urgent it is to write an answer.
type sliceChange int

const (
	unchanged   sliceChange = iota
	minorChange             // can wait for the next refresh
	majorChange
)

// compareSlice compares the last written status with the current one; threshold is in percent.
func compareSlice(last, now *sharingv1alpha1.ResourceSliceStatus, threshold int) sliceChange {
	before := meta.FindStatusCondition(last.Conditions, sharingv1alpha1.ConditionGranted)
	after := meta.FindStatusCondition(now.Conditions, sharingv1alpha1.ConditionGranted)
	switch {
	case before == nil, before.Status != after.Status, before.Reason != after.Reason, before.Message != after.Message,
		before.ObservedGeneration != after.ObservedGeneration:
		return majorChange
	case last.Phase != now.Phase, last.ProxyWanted != now.ProxyWanted, last.ObservedGeneration != now.ObservedGeneration,
		!maps.Equal(last.Labels, now.Labels),
		!slices.Equal(last.Architectures, now.Architectures), !slices.Equal(last.OperatingSystems, now.OperatingSystems),
		!slices.Equal(last.StorageClasses, now.StorageClasses), !slices.Equal(last.IngressClasses, now.IngressClasses):
		return majorChange
	case grant.Equal(last.Resources, now.Resources):
		return unchanged
	case grant.Differs(last.Resources, now.Resources, threshold):
		return majorChange
	}
	return minorChange
}

// sharedStorageClasses returns the classes from which a peer may request volumes: those of the names, or all of them if one is *, except our virtual
// ones. Of several defaults the newest is the default, as in Kubernetes.
func sharedStorageClasses(all []storagev1.StorageClass, drivers []storagev1.CSIDriver, names []string) []sharingv1alpha1.StorageClass {
	var shared []sharingv1alpha1.StorageClass
	var requested []storagev1.StorageClass
	for i := range all {
		class := &all[i]
		if class.Provisioner == virtualProvisioner || class.DeletionTimestamp != nil || !slices.Contains(names, "*") && !slices.Contains(names, class.Name) {
			continue
		}
		clones := slices.ContainsFunc(drivers, func(one storagev1.CSIDriver) bool { return one.Name == class.Provisioner })
		shared = append(shared, sharingv1alpha1.StorageClass{StorageClassName: class.Name, Clones: clones})
		requested = append(requested, *class)
	}
	preferred := storageclass.Default(requested)
	slices.SortFunc(shared, func(a, b sharingv1alpha1.StorageClass) int {
		return cmp.Compare(a.StorageClassName, b.StorageClassName)
	})
	for i := range shared {
		shared[i].Default = preferred != nil && shared[i].StorageClassName == preferred.Name
	}
	return shared
}

func sharedIngressClasses(all []networkingv1.IngressClass) []sharingv1alpha1.IngressClass {
	var shared []sharingv1alpha1.IngressClass
	for i := range all {
		class := &all[i]
		if class.DeletionTimestamp == nil {
			shared = append(shared, sharingv1alpha1.IngressClass{
				IngressClassName: class.Name, Default: class.Annotations[defaultIngressClass] == labels.True,
			})
		}
	}
	slices.SortFunc(shared, func(a, b sharingv1alpha1.IngressClass) int {
		return cmp.Compare(a.IngressClassName, b.IngressClassName)
	})
	return shared
}
