// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// maxImages is as many as a kubelet reports.
const maxImages = 50

// notReady is the documented reason of a node that is not Ready.
const notReady = "KubeletNotReady"

// reach is the result of probing the provider.
type reach int

const (
	// unasked: the first probe has not finished.
	unasked reach = iota
	// unidentified: we have no identity in the remote cluster to probe with.
	unidentified
	reachable
	unreachable
)

// action is the next step for a node.
type action int

const (
	// wait for an event.
	wait action = iota
	// probeNow: a grant proves that there is an identity.
	probeNow
	// register creates the node with its full status.
	register
	// update writes what differs.
	update
	// hold keeps what the node has, without new pods, because the answer of the provider is not there: a slice that was restored from a backup has no
	// status until the provider is asked again.
	hold
	// observe a node that is being removed: only the reachability of the remote cluster is kept current, because the drain deadline
	// of its pods depends on it.
	observe
)

// next decides the next step for the node, which is nil if there is none.
func next(slice *sharingv1alpha1.ResourceSlice, node *corev1.Node, state reach) action {
	accepted := slice.Status.Phase == sharingv1alpha1.SliceAccepted
	ending := slice.DeletionTimestamp != nil || slice.Status.Phase == sharingv1alpha1.SliceRefused
	switch {
	case node != nil && node.DeletionTimestamp != nil, state == unasked:
		return wait // after a restart, the node does not change before the first probe
	case node != nil && ending:
		return observe
	case node != nil && unanswered(slice) && len(node.Status.Allocatable) > 0:
		return hold
	case node != nil:
		return update
	case ending || !accepted:
		return wait
	case state == unidentified:
		return probeNow
	case state == reachable:
		return register
	}
	return wait // a node is registered once it can run pods
}

// unanswered reports whether the slice has no answer of the provider.
func unanswered(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.Status.Phase == "" || slice.Status.Phase == sharingv1alpha1.SlicePending
}

// nodeInputs is everything that determines the content of a virtual node.
type nodeInputs struct {
	name string
	// clusterID of the provider.
	clusterID string
	// address and port of this process, which serves the kubelet API.
	address string
	port    int32
	// version of the local API server.
	version                       string
	storage                       bool
	extraLabels, extraAnnotations map[string]string
	// granted is the slice's status; nil before the first grant.
	granted *sharingv1alpha1.ResourceSliceStatus
	reach   reach
	// reachMessage is the error of a failed probe.
	reachMessage string
	// checkNetwork: the node is Ready only while the tunnel to the remote cluster works. tunnel is nil if none is agreed.
	checkNetwork bool
	tunnel       *netv1alpha1.TunnelEndpoint
	// closed is why the provider takes no further pods although it answers; empty if it takes them.
	closed closure
	// failing is why the node must get no pods although it is Ready; empty if it may get them.
	failing string
	// leaving: the node is being removed. Its drain deadline depends only on whether the remote cluster answers.
	leaving bool
}

// amounts returns the granted resources in a form that a node may have. Only CPU and memory may have fractions; other resources are rounded
// down. The API server would refuse the whole status because of one invalid amount.
func amounts(granted corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	for name, amount := range granted {
		if amount.Sign() < 0 || len(validation.IsQualifiedName(string(name))) > 0 {
			continue
		}
		fit := amount.DeepCopy()
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			if !fit.RoundUp(0) {
				fit.Sub(*resource.NewQuantity(1, amount.Format))
			}
			// Of an amount that is not stored as an integer of 64 bits, the API server sees a fraction.
			whole := int64(math.MaxInt64)
			if fit.CmpInt64(whole) < 0 {
				whole = fit.Value()
			}
			fit.Set(whole)
		}
		all[name] = fit
	}
	return all
}

// labelValues returns the texts that are valid as label values.
func labelValues(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "" || len(validation.IsValidLabelValue(name)) > 0 })
}

func first(all []string, otherwise string) string {
	if len(all) > 0 {
		return all[0]
	}
	return otherwise
}

func (p *nodeInputs) os() string {
	if p.granted == nil {
		return "linux"
	}
	return first(labelValues(p.granted.OperatingSystems), "linux")
}

func (p *nodeInputs) arch() string {
	if p.granted == nil {
		return "amd64"
	}
	return first(labelValues(p.granted.Architectures), "amd64")
}

// initial returns the node as it is created: with the taints, before any pod can be scheduled. All clients share one list of taints, so the taint
// is written once, by a field owner that is not used again. With the annotation, and with the condition that its first taint is derived from, Kubernetes
// writes only the range of the node; see allocationTimeout.
func (p *nodeInputs) initial() *coreapply.NodeApplyConfiguration {
	return coreapply.Node(p.name).WithLabels(map[string]string{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: p.clusterID}).
		WithAnnotations(map[string]string{corev1.ObjectTTLAnnotationKey: "0"}).
		WithSpec(p.initialTaints()).
		WithStatus(coreapply.NodeStatus().WithConditions(coreapply.NodeCondition().
			WithType(corev1.NodeReady).WithStatus(corev1.ConditionFalse).WithReason(notReady).WithMessage("the node is being registered")))
}

// meta returns the labels and annotations, which follow the grant. With the UID: an apply to a node that was just deleted would create another
// one, without the taint.
func (p *nodeInputs) meta(uid types.UID) *coreapply.NodeApplyConfiguration {
	return coreapply.Node(p.name).WithUID(uid).WithLabels(p.nodeLabels()).WithAnnotations(p.nodeAnnotations())
}

// status returns the status of the node without times.
func (p *nodeInputs) status() corev1.NodeStatus {
	status := corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: p.address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: p.port}},
		NodeInfo:        p.info(),
	}
	if p.granted != nil {
		status.Capacity, status.Allocatable = amounts(p.granted.Resources), amounts(p.granted.Resources)
		status.Images = slices.Clone(p.granted.Images[:min(len(p.granted.Images), maxImages)])
	}
	status.Conditions = p.conditions()
	return status
}

// ready returns status, reason and message of the condition Ready.
func (p *nodeInputs) ready() (corev1.ConditionStatus, string, string) {
	const ok, no = "KubeletReady", notReady
	switch {
	case p.granted == nil || p.reach == unasked:
		return corev1.ConditionUnknown, no, "the remote cluster has granted nothing yet"
	case p.reach == unidentified:
		return corev1.ConditionFalse, no, p.reachMessage
	case p.reach == unreachable:
		return corev1.ConditionFalse, no, "the API server of the remote cluster does not answer: " + p.reachMessage
	}
	if up, message := p.network(); !up && !p.leaving {
		return corev1.ConditionFalse, no, message
	}
	if p.closed.reason != "" {
		return corev1.ConditionTrue, ok, "the remote cluster answers; " + p.closed.message
	}
	return corev1.ConditionTrue, ok, "the remote cluster answers and grants resources"
}

// network reports whether the pods of the two clusters reach each other, and why not.
func (p *nodeInputs) network() (up bool, message string) {
	switch {
	case !p.checkNetwork:
		return true, "the networks of the clusters are joined by other means"
	case p.tunnel == nil:
		return false, "no tunnel to the remote cluster is agreed; see the condition NetworkStatus of its ForeignCluster"
	case p.tunnel.Status.Connection.Status == netv1alpha1.Connected:
		return true, "the tunnel to the remote cluster is up"
	case meta.IsStatusConditionTrue(p.tunnel.Status.Conditions, netv1alpha1.ConditionUsable):
		// A few local nodes without connection must not evict pods; the condition of the ForeignCluster reports them.
		return true, "the tunnel to the remote cluster is up for most nodes: " + p.tunnel.Status.Connection.StatusMessage
	}
	message = "the tunnel to the remote cluster is not up"
	if status := p.tunnel.Status.Connection.Status; status != "" {
		message += " (" + string(status) + ")"
	}
	if seen := p.tunnel.Status.Connection.StatusMessage; seen != "" {
		message += ": " + seen
	}
	return false, message
}

func (p *nodeInputs) conditions() []corev1.NodeCondition {
	status, reason, message := p.ready()
	up, tunnel := p.network()
	condition := func(kind corev1.NodeConditionType, bad bool, badReason, goodReason, message string) corev1.NodeCondition {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: goodReason, Message: message}
		if bad {
			c.Status, c.Reason = corev1.ConditionTrue, badReason
		}
		if status == corev1.ConditionUnknown {
			c.Status = corev1.ConditionUnknown
		}
		return c
	}
	return []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message},
		condition(
			corev1.NodeMemoryPressure, false, "RemoteClusterHasMemoryPressure", "RemoteClusterHasSufficientMemory",
			"the nodes of the remote cluster monitor their memory",
		),
		condition(
			corev1.NodeDiskPressure, false, "RemoteClusterHasDiskPressure", "RemoteClusterHasNoDiskPressure",
			"the nodes of the remote cluster monitor their disks",
		),
		p.pressure(condition),
		condition(corev1.NodeNetworkUnavailable, !up, "LiqoNetworkingDown", "LiqoNetworkingUp", tunnel),
	}
}

// lastGrant returns the grant that a node still shows, while it is removed or the answer of the provider is not there.
func lastGrant(node *corev1.Node) *sharingv1alpha1.ResourceSliceStatus {
	return &sharingv1alpha1.ResourceSliceStatus{
		Resources: node.Status.Allocatable, Images: node.Status.Images,
		Architectures: []string{node.Status.NodeInfo.Architecture}, OperatingSystems: []string{node.Status.NodeInfo.OperatingSystem},
	}
}

// describedBy returns the grant. Nodes of which none takes pods may not be described; the node then keeps its architecture and system, because its pods do.
func describedBy(granted *sharingv1alpha1.ResourceSliceStatus, node *corev1.Node) *sharingv1alpha1.ResourceSliceStatus {
	if node == nil || len(granted.Architectures)+len(granted.OperatingSystems) > 0 {
		return granted
	}
	kept, last := *granted, lastGrant(node)
	kept.Architectures, kept.OperatingSystems = last.Architectures, last.OperatingSystems
	return &kept
}

// statusCurrent reports whether the node has the status already. It ignores times, and what other clients added.
func statusCurrent(live, status *corev1.NodeStatus) bool {
	for _, list := range []struct{ live, wanted corev1.ResourceList }{{live.Capacity, status.Capacity}, {live.Allocatable, status.Allocatable}} {
		for name, wanted := range list.wanted {
			if have, ok := list.live[name]; !ok || have.Cmp(wanted) != 0 {
				return false
			}
		}
	}
	for _, wanted := range status.Addresses {
		if !slices.Contains(live.Addresses, wanted) {
			return false
		}
	}
	if live.DaemonEndpoints != status.DaemonEndpoints || live.NodeInfo != status.NodeInfo || !equality.Semantic.DeepEqual(live.Images, status.Images) {
		return false
	}
	for _, wanted := range status.Conditions {
		if have := find(live.Conditions, wanted.Type); have == nil || have.Status != wanted.Status || have.Reason != wanted.Reason || have.Message != wanted.Message {
			return false
		}
	}
	return true
}

// contains reports whether have contains all entries of wanted.
func contains(have, wanted map[string]string) bool {
	for key, value := range wanted {
		if there, ok := have[key]; !ok || there != value {
			return false
		}
	}
	return true
}

func find(all []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}

// statusIntent returns the status with times: a condition keeps the time of its last change.
func statusIntent(node *coreapply.NodeApplyConfiguration, live, status *corev1.NodeStatus, now time.Time) *coreapply.NodeApplyConfiguration {
	at := metav1.NewTime(now).Rfc3339Copy()
	intent := coreapply.NodeStatus().
		WithDaemonEndpoints(coreapply.NodeDaemonEndpoints().WithKubeletEndpoint(coreapply.DaemonEndpoint().WithPort(status.DaemonEndpoints.KubeletEndpoint.Port))).
		WithNodeInfo(infoIntent(&status.NodeInfo))
	for _, address := range status.Addresses {
		intent.WithAddresses(coreapply.NodeAddress().WithType(address.Type).WithAddress(address.Address))
	}
	if len(status.Capacity) > 0 {
		intent.WithCapacity(status.Capacity).WithAllocatable(status.Allocatable)
	}
	for _, image := range status.Images {
		intent.WithImages(coreapply.ContainerImage().WithNames(image.Names...).WithSizeBytes(image.SizeBytes))
	}
	for _, c := range status.Conditions {
		changed := at
		if before := find(live.Conditions, c.Type); before != nil && before.Status == c.Status && !before.LastTransitionTime.IsZero() {
			changed = before.LastTransitionTime
		}
		intent.WithConditions(coreapply.NodeCondition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastTransitionTime(changed).WithLastHeartbeatTime(at))
	}
	return node.WithStatus(intent)
}
