// SPDX-License-Identifier: Apache-2.0

package purge

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"liqo.io/liqo/apis/labels"
)

// warnings is a progress that keeps its warnings.
type warnings struct {
	silent
	all []string
}

func (w *warnings) Warn(text string) { w.all = append(w.all, text) }

// TestDataStays: an uninstallation deletes a namespace of real claims only if it holds none.
func TestDataStays(t *testing.T) {
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.StorageProvisioner: "true"}}}
	}
	real := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "full", Name: "a-uid",
		Labels: map[string]string{labels.VirtualClaimNamespace: "shop", labels.VirtualClaimName: "data", labels.AppPartOf: labels.PartOf},
	}}
	rights := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "rights", Labels: map[string]string{labels.AppPartOf: labels.PartOf}}}
	c := fake.NewClientBuilder().WithObjects(namespace("full"), namespace("empty"), real, rights).Build()
	progress := &warnings{}
	if err := Storage(t.Context(), c, progress); err != nil {
		t.Fatal(err)
	}
	if len(progress.all) != 1 || !strings.Contains(progress.all[0], "Namespace full stays") || !strings.Contains(progress.all[0], "shop/data") {
		t.Errorf("warnings: %q", progress.all)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(real), real); err != nil {
		t.Error(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "empty"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the empty namespace: %v", err)
	}
	// A purge does the same, and removes what our processes had there.
	ours, err := ourNamespaces(t.Context(), c, "liqo", true, progress)
	if err != nil || len(ours) != 1 || ours[0].GetName() != rights.Name {
		t.Errorf("%v, %v", ours, err)
	}
}
