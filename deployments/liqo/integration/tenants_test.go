// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestAttackNM5: with the token of the virtual kubelet of one peer, an attacker changes nothing of another peer.
func TestAttackNM5(t *testing.T) {
	ctx, admin, root := installed(t)
	for _, add := range []func(client.Client) error{
		func(c client.Client) error { return coordinationv1.AddToScheme(c.Scheme()) },
		func(c client.Client) error { return netv1alpha1.AddToScheme(c.Scheme()) },
	} {
		if err := add(root); err != nil {
			t.Fatal(err)
		}
	}
	const milan, turin, long = "liqo-tenant-milan-000000", "liqo-tenant-turin-000000", "liqo-tenant-abcdefghij-abcdefghij-abcdefghij-abcdefghijk-000000"
	longName := "liqo-abcdefghij-abcdefghij-abcdefghij-abcdefghijk-and-more"
	tenants := map[string]string{milan: "milan-id", turin: "turin-id", long: "long-id"}
	nodes := map[string]string{"liqo-milan": "milan-id", "liqo-turin": "turin-id", "liqo-turin-000000": "turin-id", longName: "long-id"}
	node := func(name, id string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: keys{"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": id}}}
	}
	pod := func(on string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "on-" + on},
			Spec:       corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "c"}}, AutomountServiceAccountToken: new(false)},
		}
	}
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: name}}
	}
	volume := func(id string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{
				Name: "of-" + id, Labels: keys{"liqo.io/remote-cluster-id": id},
				Annotations: keys{"pv.kubernetes.io/provisioned-by": "liqo.io/storage"},
			},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/x"}},
			},
		}
	}
	mapping := func(on, id string, restricted bool, ports ...netv1alpha1.MappingPort) *netv1alpha1.IPMapping {
		return &netv1alpha1.IPMapping{
			ObjectMeta: metav1.ObjectMeta{
				Name: on + "-1", Labels: keys{"liqo.io/remote-cluster-id": id},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: on, UID: "1"}},
			},
			Spec: netv1alpha1.IPMappingSpec{Address: "10.200.0.1", ClusterIDs: []string{id}, Ports: ports, Restricted: restricted},
		}
	}
	objects := []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}, pod("worker"), lease("worker"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
	}
	for name, id := range tenants {
		objects = append(objects, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: keys{"discovery.liqo.io/tenant-namespace": "true", "discovery.liqo.io/cluster-id": id}},
		}, volume(id))
	}
	for name, id := range nodes {
		objects = append(objects, node(name, id), pod(name), lease(name), mapping(name, id, true))
	}
	bind := func(namespace, role, account string) client.Object {
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account, Name: "virtual-kubelet"}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if namespace == "" {
			return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + account}, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}
		}
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role + account}, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}
	}
	for name := range tenants {
		objects = append(
			objects, bind("", "liqo-virtual-kubelet", name), bind("kube-node-lease", "liqo-virtual-kubelet-lease", name),
			bind("default", "liqo-virtual-kubelet-offloaded", name),
		)
	}
	for _, object := range objects {
		if err := createUnchecked(ctx, root, object); err != nil {
			t.Fatalf("%T %s: %v", object, object.GetName(), err)
		}
	}
	patch := func(c client.Client, object client.Object, part string) error {
		object.SetResourceVersion("")
		change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
		if part == "status" {
			return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`)), client.DryRunAll)
		}
		return c.Patch(ctx, object, change, client.DryRunAll)
	}
	connected := func(tenant string) client.Client {
		c := connect(t, asAccount(admin, tenant, "virtual-kubelet"))
		for _, add := range []error{coordinationv1.AddToScheme(c.Scheme()), netv1alpha1.AddToScheme(c.Scheme())} {
			if add != nil {
				t.Fatal(add)
			}
		}
		return c
	}
	c := connected(milan)
	update := func(c client.Client, name string) error {
		var live coordinationv1.Lease
		if err := root.Get(ctx, client.ObjectKeyFromObject(lease(name)), &live); err != nil {
			t.Fatal(err)
		}
		live.Spec.HolderIdentity = new("x")
		return c.Update(ctx, &live, client.DryRunAll)
	}
	inForce(t, "liqo-virtual-tenants", func() error { return patch(c, node("liqo-turin", ""), "") })
	inForce(t, "liqo-virtual-kubelets", func() error { return update(c, "worker") })
	inForce(t, "liqo-virtual-pods", func() error { return patch(c, pod("worker"), "status") })
	port := netv1alpha1.MappingPort{Protocol: corev1.ProtocolTCP, Port: 443}
	fresh := func(change func(*netv1alpha1.IPMapping), on, id string, restricted bool, ports ...netv1alpha1.MappingPort) *netv1alpha1.IPMapping {
		one := mapping(on, id, restricted, ports...)
		one.Name = on + "-2"
		change(one)
		return one
	}
	as := func(*netv1alpha1.IPMapping) {}
	type write struct {
		what    string
		err     error
		allowed bool
	}
	writes := []write{
		{"create its node again", c.Create(ctx, node("liqo-milan-000000", "milan-id"), client.DryRunAll), true},
		{"create a node of another peer", c.Create(ctx, node("liqo-turin-1", "turin-id"), client.DryRunAll), false},
		{"delete its volume", c.Delete(ctx, volume("milan-id"), client.DryRunAll), true},
		{"delete a volume of another peer", c.Delete(ctx, volume("turin-id"), client.DryRunAll), false},
		{"change its volume", patch(c, volume("milan-id"), ""), true},
		{"change a volume of another peer", patch(c, volume("turin-id"), ""), false},
		{"give its volume away", c.Patch(
			ctx, volume("milan-id"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":"turin-id"}}}`)), client.DryRunAll,
		), false},
		{"take a volume", c.Patch(
			ctx, volume("turin-id"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":"milan-id"}}}`)), client.DryRunAll,
		), false},
		{"take a volume's label", c.Patch(
			ctx, volume("milan-id"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":null}}}`)),
			client.DryRunAll,
		), false},
		{"take a node", c.Patch(
			ctx, node("liqo-turin", ""),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"liqo.io/remote-cluster-id":"milan-id"}}}`)), client.DryRunAll,
		), false},

		{"map an address", c.Create(ctx, fresh(as, "liqo-milan", "milan-id", true), client.DryRunAll), true},
		{"map the API server", c.Create(ctx, fresh(as, "liqo-milan", "milan-id", false, port), client.DryRunAll), true},
		{"map any host", c.Create(ctx, fresh(as, "liqo-milan", "milan-id", false), client.DryRunAll), false},
		{
			"map two ports of any host",
			c.Create(ctx, fresh(as, "liqo-milan", "milan-id", false, port, netv1alpha1.MappingPort{Protocol: corev1.ProtocolTCP, Port: 22}), client.DryRunAll),
			false,
		},
		{"map an address for another peer", c.Create(ctx, fresh(as, "liqo-milan", "turin-id", true), client.DryRunAll), false},
		{
			"map an address for all peers",
			c.Create(ctx, fresh(func(one *netv1alpha1.IPMapping) { one.Spec.ClusterIDs = nil }, "liqo-milan", "milan-id", true), client.DryRunAll),
			false,
		},
		{"map an address for two peers", c.Create(
			ctx, fresh(func(one *netv1alpha1.IPMapping) { one.Spec.ClusterIDs = []string{"milan-id", "turin-id"} }, "liqo-milan", "milan-id", true),
			client.DryRunAll,
		), false},
		{"map an address with another node", c.Create(ctx, fresh(as, "liqo-turin", "milan-id", true), client.DryRunAll), false},
		{
			"map an address without a node",
			c.Create(ctx, fresh(func(one *netv1alpha1.IPMapping) { one.OwnerReferences = nil }, "liqo-milan", "milan-id", true), client.DryRunAll),
			false,
		},
		{
			"map an address without a peer",
			c.Create(ctx, fresh(func(one *netv1alpha1.IPMapping) { one.Labels = nil }, "liqo-milan", "milan-id", true), client.DryRunAll), false,
		},
		{"change its mapping", c.Patch(
			ctx, mapping("liqo-milan", "", true),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ports":[{"protocol":"TCP","port":80}]}}`)), client.DryRunAll,
		), true},
		{
			"open its mapping",
			c.Patch(ctx, mapping("liqo-milan", "", true), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"restricted":false}}`)), client.DryRunAll),
			false,
		},
		{"delete its mapping", c.Delete(ctx, mapping("liqo-milan", "", true), client.DryRunAll), true},
		{"delete a mapping of another peer", c.Delete(ctx, mapping("liqo-turin", "", true), client.DryRunAll), false},
		{"change a mapping of another peer", c.Patch(
			ctx, mapping("liqo-turin", "", true),
			client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ports":[{"protocol":"TCP","port":80}]}}`)), client.DryRunAll,
		), false},
		{"change a real node", patch(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, ""), false},
	}
	for tenant := range tenants {
		own := connected(tenant)
		for name, id := range nodes {
			allowed := id == tenants[tenant]
			writes = append(writes,
				write{tenant + " deletes pod " + name, own.Delete(ctx, pod(name), client.DryRunAll), allowed},
				write{tenant + " writes the status of pod " + name, patch(own, pod(name), "status"), allowed},
				write{tenant + " changes node " + name, patch(own, node(name, ""), ""), allowed},
				write{tenant + " writes the status of node " + name, patch(own, node(name, ""), "status"), allowed},
				write{tenant + " renews lease " + name, update(own, name), allowed},
			)
		}
		writes = append(
			writes, write{tenant + " renews the lease of a real node", update(own, "worker"), false},
			write{tenant + " deletes a pod of a real node", own.Delete(ctx, pod("worker"), client.DryRunAll), false},
		)
	}
	for _, one := range writes {
		refused := one.err != nil && strings.Contains(one.err.Error(), "ValidatingAdmissionPolicy 'liqo-virtual-")
		if one.allowed && one.err != nil || !one.allowed && (!refused || !apierrors.IsForbidden(one.err) && !apierrors.IsInvalid(one.err)) {
			t.Errorf("%s: %v, want allowed: %t", one.what, one.err, one.allowed)
		}
	}
}
