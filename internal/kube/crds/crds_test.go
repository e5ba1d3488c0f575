// SPDX-License-Identifier: Apache-2.0

package crds_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	chart "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/internal/kube/crds"
	"liqo.io/liqo/internal/kube/kubetest"
)

const slices = "resourceslices.sharing.liqo.io"

// TestApply is an upgrade: the cluster has an old definition that another client wrote, and the identity has exactly
// the rights of the chart's hook.
func TestApply(t *testing.T) {
	admin := kubetest.Fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := crds.Load(chart.FS)
	if err != nil {
		t.Fatal(err)
	}
	root := connect(t, admin)
	grant(ctx, t, root, "hook")
	hook := rest.CopyConfig(admin)
	hook.Impersonate.UserName = "hook"
	c := connect(t, hook)

	old := definition(t, slices)
	old.Spec.Versions[0].AdditionalPrinterColumns = nil
	if err := root.Create(ctx, old); err != nil {
		t.Fatal(err)
	}
	var applied []string
	if err := crds.Apply(ctx, c, all, func(name string) { applied = append(applied, name) }); err != nil {
		t.Fatal(err)
	}
	if len(applied) != len(all) || len(all) < 9 {
		t.Errorf("done was called for %v", applied)
	}
	before := read(ctx, t, root)
	if len(before[slices].Spec.Versions[0].AdditionalPrinterColumns) == 0 {
		t.Error("the old definition was not updated")
	}
	if err := crds.Apply(ctx, c, all, func(string) {}); err != nil {
		t.Fatal(err)
	}
	for name, now := range read(ctx, t, root) {
		if now.Generation != before[name].Generation {
			t.Errorf("%s changed when applied twice", name)
		}
	}

	foreign := all[0].DeepCopy()
	foreign.SetName("things.example.org")
	if err := crds.Apply(ctx, c, append(all[:0:0], foreign), func(string) {}); !apierrors.IsForbidden(err) {
		t.Errorf("a definition that is not ours: %v, want Forbidden", err)
	}
}

func TestLoad(t *testing.T) {
	if _, err := crds.Load(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty chart: %v", err)
	}
	if _, err := crds.Load(fstest.MapFS{"crds/a.yaml": {Data: []byte("a: b: c")}}); err == nil {
		t.Error("invalid YAML was accepted")
	}
}

func connect(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// grant gives the user the rights in the chart's generated file.
func grant(ctx context.Context, t *testing.T, c client.Client, user string) {
	t.Helper()
	text, err := fs.ReadFile(chart.FS, "files/rbac-crds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal(text, &role); err != nil {
		t.Fatal(err)
	}
	role.Name = "test"
	binding := rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "test"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, object := range []client.Object{&role, &binding} {
		if err := c.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
}

func definition(t *testing.T, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crds.Load(chart.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.GetName() == name {
			var typed apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, &typed); err != nil {
				t.Fatal(err)
			}
			return &typed
		}
	}
	t.Fatalf("no definition is called %s", name)
	return nil
}

func read(ctx context.Context, t *testing.T, c client.Client) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, one := range list.Items {
		found[one.Name] = one
	}
	return found
}
