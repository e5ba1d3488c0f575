// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestVirtualKubelets: a virtual kubelet may delete pods and write their status only on a virtual node.
func TestVirtualKubelets(t *testing.T) {
	ctx, admin, root := installed(t)
	const account = "system:serviceaccount:liqo-tenant-milan-000000:virtual-kubelet"
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}, AutomountServiceAccountToken: new(false)},
		}
	}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "kubelet"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet"},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubelet"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-offloaded"},
		},
		pod("ours", "liqo-milan"), pod("others", "worker-1"), pod("unscheduled", ""),
	} {
		if err := client.IgnoreAlreadyExists(root.Create(ctx, object)); err != nil {
			t.Fatal(err)
		}
	}
	limited := rest.CopyConfig(admin)
	limited.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	c := connect(t, limited)
	remove := func(name string) error { return c.Delete(ctx, pod(name, ""), client.DryRunAll) }
	report := func(name string) error {
		return c.Status().Patch(ctx, pod(name, ""), client.RawPatch("application/strategic-merge-patch+json", []byte(`{"status":{"message":"x"}}`)), client.DryRunAll)
	}
	change := func(name, text string) error {
		return c.Patch(ctx, pod(name, ""), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
	}
	const (
		longer = `{"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":3601},` +
			`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":3601}]}}`
		image = `{"spec":{"containers":[{"name":"c","image":"other"}]}}`
	)
	inForce(t, "liqo-virtual-pods", func() error { return remove("others") })
	for what, err := range map[string]error{
		"deletion of ours": remove("ours"), "the status of ours": report("ours"), "the tolerations of ours": change("ours", longer),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"deletion of an unscheduled pod": remove("unscheduled"), "the status of an unscheduled pod": report("unscheduled"), "the status of others": report("others"),
		"the tolerations of others": change("others", longer), "the image of ours": change("ours", image),
		"the deadline of ours":  change("ours", `{"spec":{"activeDeadlineSeconds":1}}`),
		"a label of ours":       change("ours", `{"metadata":{"labels":{"app":"web"}}}`),
		"an annotation of ours": change("ours", `{"metadata":{"annotations":{"a":"b"}}}`),
		"a finalizer of ours":   change("ours", `{"metadata":{"finalizers":["example.org/stay"]}}`),
	} {
		if err == nil || !strings.Contains(err.Error(), "liqo-virtual-pods") {
			t.Errorf("%s: %v, want a refusal of the admission policy", what, err)
		}
	}
}
