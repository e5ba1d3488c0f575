// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/peering/auth/published"
)

func gatewayDeployment(name, lane string, ready int32) appsv1.Deployment {
	d := deployment(name, ready, "gateway")
	d.Labels = map[string]string{labels.GatewayLane: lane}
	return d
}

// TestInternalNetwork: with Liqo's own network, the status of the cluster includes its workloads, networks and addresses.
func TestInternalNetwork(t *testing.T) {
	service := func(name, lane string, kind corev1.ServiceType, annotations map[string]string) corev1.Service {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "liqo", Name: name, Annotations: annotations, Labels: map[string]string{labels.Gateway: "true", labels.GatewayLane: lane},
		}}
		s.Spec.Type, s.Spec.Ports = kind, []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 5871, NodePort: 30871}}
		return s
	}
	o := &localObjects{
		namespace: "liqo", exists: true, identity: discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID, ClusterName: "rome"},
		deployments: []appsv1.Deployment{
			deployment("liqo-auth", 1), deployment("liqo-controller-manager", 1, "controller-manager", "--disable-internal-network=false"),
			gatewayDeployment("liqo-gateway-1", "1", 0), gatewayDeployment("liqo-gateway", "0", 1),
		},
		daemonSets: []appsv1.DaemonSet{{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-route"},
			Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2, NumberAvailable: 2},
		}},
		nodes: []corev1.Node{actiontest.Node("worker", "10.0.0.2", corev1.ConditionTrue)},
		services: []corev1.Service{
			service("liqo-gateway-1", "1", corev1.ServiceTypeLoadBalancer, nil),
			service("liqo-gateway", "0", corev1.ServiceTypeNodePort, map[string]string{labels.GatewayNodeIP: "10.0.0.9"}),
			service("liqo-gateway-2", "2", corev1.ServiceTypeClusterIP, nil),
			service("liqo-gateway-3", "3", corev1.ServiceTypeNodePort, map[string]string{labels.OverrideAddress: "g.example.org", labels.OverridePort: "5"}),
		},
		networks: map[string]string{"POD_CIDR": "10.200.0.0/16", "SERVICE_CIDR": "10.80.0.0/12", "RESERVED_SUBNETS": "10.1.0.0/16,10.2.0.0/16"},
		configs: []netv1alpha1.NetworkConfig{
			{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Replicated: "true"}}, Spec: netv1alpha1.NetworkConfigSpec{ExternalCIDR: "10.99.0.0/16"}},
			{Spec: netv1alpha1.NetworkConfigSpec{ExternalCIDR: "10.201.0.0/16"}},
		},
	}
	s := newLocalStatus(o)
	var names []string
	for _, component := range s.Components {
		names = append(names, component.Kind+" "+component.Name)
	}
	if got := strings.Join(names, ", "); got != "Deployment liqo-controller-manager, Deployment liqo-auth, Deployment liqo-gateway, Deployment "+
		"liqo-gateway-1, DaemonSet liqo-route" {
		t.Error(got)
	}
	want := []string{"Deployment liqo/liqo-gateway-1 has 0 of 1 pods ready: no pod is up", "DaemonSet liqo/liqo-route has 2 of 3 pods ready"}
	if diff := cmp.Diff(want, s.Problems); diff != "" {
		t.Error(diff)
	}
	network := &Network{
		Status: "Internal", PodCIDR: "10.200.0.0/16", ServiceCIDR: "10.80.0.0/12", ExternalCIDR: "10.201.0.0/16",
		ReservedSubnets: []string{"10.1.0.0/16", "10.2.0.0/16"},
	}
	if diff := cmp.Diff(network, s.Network); diff != "" {
		t.Error(diff)
	}
	gateways := []GatewayEndpoint{
		{Lane: 0, URL: "udp://10.0.0.9:30871"},
		{Lane: 1, Error: published.ErrPending.Error()},
		{Lane: 2, Error: "Service liqo-gateway-2 has type ClusterIP, so the peers must be reachable instead"},
		{Lane: 3, URL: "udp://g.example.org:5"},
	}
	if diff := cmp.Diff(gateways, s.Endpoints.Gateways); diff != "" {
		t.Error(diff)
	}
	o.deployments, o.daemonSets = o.deployments[:2], nil
	want = []string{
		"Deployment liqo/liqo-gateway is missing; `liqoctl upgrade` restores it",
		"DaemonSet liqo/liqo-route is missing; `liqoctl upgrade` restores it",
	}
	if diff := cmp.Diff(want, newLocalStatus(o).Problems); diff != "" {
		t.Error(diff)
	}
}

// TestPeerNetwork: the status shows each side's NetworkConfig until the TunnelEndpoint holds the agreed networks.
func TestPeerNetwork(t *testing.T) {
	own := netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{
		Cluster: netv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID}, PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16",
		EndpointIP: "192.0.2.1", BackendConfig: map[string]string{"port": "30871"},
	}}
	theirs := netv1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Replicated: "true", labels.OriginID: actiontest.RemoteID}},
		Spec: netv1alpha1.NetworkConfigSpec{
			Cluster: netv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID}, PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16",
		},
		Status: netv1alpha1.NetworkConfigStatus{Processed: true, PodCIDRNAT: "10.1.0.0/16"},
	}
	other := theirs
	other.Labels = map[string]string{labels.Replicated: "true", labels.OriginID: "another-id"}
	got := newPeerNetwork("milan", actiontest.RemoteID, []netv1alpha1.NetworkConfig{other, own, theirs}, nil)
	want := &PeerNetwork{
		Local:  &SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16"},
		Remote: &SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16", RemappedPodCIDR: "10.1.0.0/16", RemappedExternalCIDR: "None"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	tunnel := netv1alpha1.TunnelEndpoint{
		Spec: netv1alpha1.TunnelEndpointSpec{
			ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID}, EndpointIP: "192.0.2.2", BackendConfig: map[string]string{"port": "5871"},
			LocalPodCIDR: "10.200.0.0/16", LocalNATPodCIDR: "10.2.0.0/16", LocalExternalCIDR: "10.201.0.0/16",
			RemotePodCIDR: "10.200.0.0/16", RemoteNATPodCIDR: "10.1.0.0/16", RemoteExternalCIDR: "10.202.0.0/16", RemoteNATExternalCIDR: "None",
			Lanes: []netv1alpha1.Lane{
				{Number: 0, Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{"192.0.2.2", "192.0.2.3"}, Port: 5871}}}, {Number: 1},
			},
		},
		Status: netv1alpha1.TunnelEndpointStatus{Connection: netv1alpha1.Connection{
			Status: netv1alpha1.Connected, StatusMessage: "2 of 2 lanes", Latency: netv1alpha1.Latency{Value: "1.2ms"}, MTU: 1420,
		}, Conditions: []metav1.Condition{{
			Type: netv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "10.202.0.0/16 is used as it is, by the ForeignCluster",
		}, {
			Type: netv1alpha1.ConditionNetworksFree, Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonNetworkOverlapsNode, Message: "a node reaches it",
		}}},
	}
	theirs.Status = netv1alpha1.NetworkConfigStatus{Conditions: []metav1.Condition{{
		Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonNetworkChanged, Message: "podCIDR is now another one",
	}}}
	got = newPeerNetwork("milan", actiontest.RemoteID, []netv1alpha1.NetworkConfig{own, theirs}, []netv1alpha1.TunnelEndpoint{{}, tunnel})
	want = &PeerNetwork{
		Local:   &SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.201.0.0/16", RemappedPodCIDR: "10.2.0.0/16", RemappedExternalCIDR: "None"},
		Remote:  &SeenNetworks{PodCIDR: "10.200.0.0/16", ExternalCIDR: "10.202.0.0/16", RemappedPodCIDR: "10.1.0.0/16", RemappedExternalCIDR: "None"},
		Use:     "10.202.0.0/16 is used as it is, by the ForeignCluster",
		Refused: "NetworkChanged: the peer announces 10.200.0.0/16 and 10.201.0.0/16; podCIDR is now another one",
		Accept:  "liqoctl accept networks milan 10.201.0.0/16", Conflict: "a node reaches it",
		Shown: "10.2.0.0/16 leads to the pods here for pods of the peer only: in this cluster it is in other use, or not set apart; a program " +
			"here that reads such an address from " +
			"the peer's API reaches another pod, or none. If the peering was agreed by an earlier version, unpeer and peer again",
		Connection: &PeerConnection{
			LocalGateway: "192.0.2.1:30871", RemoteGateway: "192.0.2.2:5871", Status: "Connected", Message: "2 of 2 lanes", Latency: "1.2ms", MTU: 1420,
			Lanes: []PeerLane{{Number: 0, Endpoints: []string{"192.0.2.2:5871", "192.0.2.3:5871"}}, {Number: 1}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fc := discoveryv1alpha1.ForeignCluster{
		Spec: discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.RemoteID}},
	}
	fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{actiontest.Condition(discoveryv1alpha1.NetworkStatus, discoveryv1alpha1.StatusExternal, "")}
	if peers := newPeerStatuses(&peerObjects{
		fcs: []discoveryv1alpha1.ForeignCluster{fc}, tunnels: []netv1alpha1.TunnelEndpoint{tunnel},
	}, nil); peers[0].Fabric != nil {
		t.Errorf("an external network has %+v", peers[0].Fabric)
	}
	tunnel.Labels = map[string]string{labels.TunnelShown: "true"}
	if got = newPeerNetwork(
		"milan", actiontest.RemoteID, nil, []netv1alpha1.TunnelEndpoint{tunnel},
	); got.Shown != "10.2.0.0/16 leads to the pods here, for pods of both clusters" {
		t.Error(got.Shown)
	}
	tunnel.Spec.LocalNATPodCIDR = ""
	if got = newPeerNetwork("milan", actiontest.RemoteID, nil, []netv1alpha1.TunnelEndpoint{tunnel}); got.Shown != "" {
		t.Error(got.Shown)
	}
}
