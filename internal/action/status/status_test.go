// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/action/actiontest"
)

func deployment(name string, ready int32, args ...string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name}}
	d.Spec.Replicas = new(int32(1))
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "localhost/liqo:v1", Args: args}}
	d.Status.ReadyReplicas, d.Status.AvailableReplicas = ready, ready
	if ready == 0 {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Message: "no pod is up"}}
	}
	return d
}

func TestLocalStatus(t *testing.T) {
	plane := actiontest.Node("plane", "10.0.0.1", corev1.ConditionTrue)
	plane.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	well := &localObjects{
		namespace: "liqo", exists: true, authURL: "https://192.0.2.7",
		identity: discoveryv1alpha1.ClusterIdentity{ClusterID: actiontest.LocalID, ClusterName: "rome"},
		deployments: []appsv1.Deployment{
			deployment("liqo-auth", 1), deployment("liqo-controller-manager", 1, "controller-manager", "--cluster-labels=zone=a,tier=gold"),
		},
		nodes: []corev1.Node{actiontest.Node("worker", "10.0.0.2", corev1.ConditionTrue), plane},
	}
	s := newLocalStatus(well)
	if len(s.Problems) != 0 || s.Components[0].Name != "liqo-controller-manager" || s.Endpoints.APIServer != "https://10.0.0.1:6443" {
		t.Errorf("all well: %+v", s)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "tier": "gold"}, s.Cluster.Labels); diff != "" {
		t.Error(diff)
	}
	measured := *well
	measured.deployments = append(measured.deployments, deployment("liqo-metric-agent", 0))
	if s := newLocalStatus(&measured); len(s.Components) != 3 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "liqo-metric-agent has 0 of 1") {
		t.Errorf("without the metric agent: %+v", s)
	}
	stopped := *well
	stopped.deployments = []appsv1.Deployment{deployment("liqo-auth", 0), well.deployments[1]}
	stopped.deployments[0].Spec.Replicas = new(int32(0))
	if s := newLocalStatus(&stopped); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "Deployment liqo/liqo-auth is scaled to 0") {
		t.Errorf("an interrupted uninstallation: %+v", s)
	}
	if s := newLocalStatus(&localObjects{namespace: "liqo"}); len(s.Problems) != 1 || s.Cluster != nil {
		t.Errorf("no namespace: %+v", s)
	}
	sick := *well
	sick.deployments = []appsv1.Deployment{deployment("liqo-auth", 0, "auth", "--advertise-api-server-address", "api.example.org:6443")}
	s = newLocalStatus(&sick)
	want := []string{
		"Deployment liqo/liqo-controller-manager is missing; `liqoctl upgrade` restores it",
		"Deployment liqo/liqo-auth has 0 of 1 pods ready: no pod is up",
	}
	if diff := cmp.Diff(want, s.Problems); diff != "" {
		t.Error(diff)
	}
	if s.Endpoints.APIServer != "https://api.example.org:6443" {
		t.Errorf("configured API server: %s", s.Endpoints.APIServer)
	}
}

func TestPeerStatuses(t *testing.T) {
	fc := func(name, id string) discoveryv1alpha1.ForeignCluster {
		return discoveryv1alpha1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &discoveryv1alpha1.ClusterIdentity{ClusterID: id, ClusterName: name}},
			Status: discoveryv1alpha1.ForeignClusterStatus{PeeringConditions: []discoveryv1alpha1.PeeringCondition{
				actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""),
			}},
		}
	}
	grant := func(cpu string, objectLabels map[string]string) sharingv1alpha1.ResourceSlice {
		return sharingv1alpha1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: objectLabels},
			Status:     sharingv1alpha1.ResourceSliceStatus{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}
	}
	fcs := []discoveryv1alpha1.ForeignCluster{fc("naples", "id-n"), fc("milan", "id-m"), {ObjectMeta: metav1.ObjectMeta{Name: "unknown"}}}
	grants := []sharingv1alpha1.ResourceSlice{
		grant("2", map[string]string{labels.Replication: "true", labels.RemoteID: "id-m"}),
		grant("1500m", map[string]string{labels.Replication: "true", labels.RemoteID: "id-m"}),
		grant("7", map[string]string{labels.Replication: "false", labels.Replicated: "true", labels.OriginID: "id-m", labels.RemoteID: "id-local"}),
		grant("9", map[string]string{labels.Replication: "true", labels.RemoteID: "id-n"}),
	}
	names := func(peers []Peer) (all []string) {
		for _, peer := range peers {
			name := peer.Name
			if !peer.Found {
				name += "?"
			}
			all = append(all, name)
		}
		return all
	}
	all := newPeerStatuses(&peerObjects{fcs: fcs, grants: grants}, nil)
	if got := strings.Join(names(all), " "); got != "milan naples unknown" {
		t.Errorf("all: %s", got)
	}
	milan := all[0]
	if cpu := milan.Resources.Acquired[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse("3500m")) != 0 {
		t.Errorf("acquired %s", cpu.String())
	}
	if cpu := milan.Resources.Shared[corev1.ResourceCPU]; cpu.Cmp(resource.MustParse("7")) != 0 {
		t.Errorf("shared %s", cpu.String())
	}
	if milan.Outgoing.Status != "Established" || milan.Incoming.Status != "None" {
		t.Errorf("conditions: %+v", milan)
	}
	if got := strings.Join(names(newPeerStatuses(&peerObjects{fcs: fcs, grants: grants}, []string{"turin", "milan", "turin"})), " "); got != "milan turin?" {
		t.Errorf("by name: %s", got)
	}
	if len(newPeerStatuses(&peerObjects{}, nil)) != 0 {
		t.Error("no peers")
	}
}
