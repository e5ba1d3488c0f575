// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// tryMoves: while a volume moves, the controller manager has rights in a namespace of users. An attacker who controls it can use them for objects of moves
// only, and binds them to itself only.
func tryMoves(ctx context.Context, t *testing.T, root, c client.Client) {
	t.Helper()
	meta := func(name string, moves bool) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "default", Name: name}
		if moves {
			m.Labels = map[string]string{labels.Move: "uid"}
		}
		return m
	}
	grant := func(namespace, name, role, account string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "liqo", Name: account}},
		}
	}
	const role = "liqo-controller-manager-offloaded"
	if err := c.Create(ctx, grant("default", "liqo-move-1", role, "liqo-controller-manager")); err != nil {
		t.Fatalf("the controller manager cannot take its rights for a move: %v", err)
	}
	pod := func(name string, moves bool, change func(*corev1.PodSpec)) *corev1.Pod {
		one := &corev1.Pod{
			ObjectMeta: meta(name, moves),
			Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "mover", Image: "mover"}}},
		}
		if change != nil {
			change(&one.Spec)
		}
		return one
	}
	claim := func(name string, moves bool) *corev1.PersistentVolumeClaim {
		one := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		one.ObjectMeta = meta(name, moves)
		return one
	}
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: source}} }
	}
	inForce(t, "liqo-moves", func() error {
		return c.Create(ctx, &corev1.Secret{ObjectMeta: meta("other", false)}, client.DryRunAll)
	})
	if err := networkingv1.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	theirs := &corev1.Secret{ObjectMeta: meta("theirs", false)}
	if err := root.Create(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	create := func(object client.Object) func() error {
		return func() error { return c.Create(ctx, object, client.DryRunAll) }
	}
	for what, test := range map[string]struct {
		act     func() error
		allowed bool
	}{
		"a Secret of a move":      {create(&corev1.Secret{ObjectMeta: meta("liqo-move-1-source", true)}), true},
		"a pod of a move":         {create(pod("liqo-move-1-target", true, nil)), true},
		"a claim of a move":       {create(claim("liqo-move-1-target", true)), true},
		"a policy of a move":      {create(&networkingv1.NetworkPolicy{ObjectMeta: meta("liqo-move-1", true)}), true},
		"a Secret without label":  {create(&corev1.Secret{ObjectMeta: meta("liqo-move-1-source", false)}), false},
		"a Secret of another one": {create(&corev1.Secret{ObjectMeta: meta("tokens", true)}), false},
		"their Secret":            {func() error { return c.Delete(ctx, theirs, client.DryRunAll) }, false},
		"a Service": {
			create(&corev1.Service{ObjectMeta: meta("web", false), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}), false,
		},
		"a policy":                    {create(&networkingv1.NetworkPolicy{ObjectMeta: meta("allow", false)}), false},
		"a pod":                       {create(pod("web", false, nil)), false},
		"a claim":                     {create(claim("data", false)), false},
		"a pod with the node's files": {create(pod("liqo-move-1-copy", true, volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}))), false},
		"a pod with their Secret": {
			create(pod("liqo-move-1-copy", true, volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "theirs"}}))), false,
		},
		"a pod with a token": {create(pod("liqo-move-1-copy", true, func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = nil })), false},
		"a privileged pod": {create(pod("liqo-move-1-copy", true, func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		})), false},
		"a pod in the node's network": {create(pod("liqo-move-1-copy", true, func(s *corev1.PodSpec) { s.HostNetwork = true })), false},
		"a pod that reads a Secret into its environment": {create(pod("liqo-move-1-copy", true, func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "theirs"}}}}
		})), false},
		"rights under another name":     {create(grant("default", "other", role, "liqo-controller-manager")), false},
		"rights of another process":     {create(grant("default", "liqo-move-2", role, "liqo-auth")), false},
		"rights in the system":          {create(grant("kube-system", "liqo-move-2", role, "liqo-controller-manager")), false},
		"rights in Liqo's namespace":    {create(grant("liqo", "liqo-move-2", role, "liqo-controller-manager")), false},
		"another role under that name":  {create(grant("default", "liqo-move-2", "liqo-controller-manager-remote", "liqo-controller-manager")), false},
		"every right, under that name":  {create(grant("default", "liqo-move-2", "cluster-admin", "liqo-controller-manager")), false},
		"reading a Secret in that time": {func() error { return c.Get(ctx, client.ObjectKeyFromObject(theirs), &corev1.Secret{}) }, false},
	} {
		if err := test.act(); (err == nil) != test.allowed {
			t.Errorf("%s: %v", what, err)
		} else if err != nil && !strings.Contains(err.Error(), "forbidden") && !strings.Contains(err.Error(), "denied request") {
			t.Errorf("%s was refused for another reason: %v", what, err)
		}
	}
}
