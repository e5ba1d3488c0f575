// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestExternalName: a name of a Service of this cluster is that of its copy in the peer; other names stay.
func TestExternalName(t *testing.T) {
	remoteOf := func(namespace string) (string, bool) {
		remote, is := map[string]string{"shop": "shop-rome-ab12cd", "same": "same"}[namespace]
		return remote, is
	}
	for name, want := range map[string]string{
		"db.example.com": "db.example.com", "example.com.": "example.com.", "db": "db",
		"web.shop.svc.cluster.local": "web.shop-rome-ab12cd.svc.cluster.local", "web.shop.svc": "web.shop-rome-ab12cd.svc",
		"web-0.web.shop.svc.rome.example.": "web-0.web.shop-rome-ab12cd.svc.rome.example",
		"web.same.svc.cluster.local":       "web.same.svc.cluster.local", "svc.example.com": "svc.example.com", "a.svc.example.com": "a.svc.example.com",
		"idx.prod.svc.region.vectors.example": "idx.prod.svc.region.vectors.example",
		"vault.bank.svc.cluster.local":        "", "kubernetes.default.svc": "", "kubernetes.default.svc.cluster.local": "",
		// a namespace of the same name in another cluster
		"db.shop.svc.paris.example": "db.shop.svc.paris.example", "db.shop.svc.eu.rome.example": "db.shop.svc.eu.rome.example",
	} {
		local := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name}}
		got, err := kinds.ExternalName(mapping, local, remoteOf)
		switch {
		case want == "" && (!errors.Is(err, project.ErrRefused) || !strings.Contains(err.Error(), "offload the namespace")):
			t.Errorf("%s: %v, want a refusal", name, err)
		case want != "" && (err != nil || got.Spec.ExternalName != want):
			t.Errorf("%s: %v, %v, want %s", name, got, err, want)
		}
		if local.Spec.ExternalName != name {
			t.Errorf("%s: the local Service has changed", name)
		}
	}
	unknown := mapping
	unknown.Domain = ""
	local := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.shop.svc.rome.example"}}
	if got, err := kinds.ExternalName(unknown, local, remoteOf); err != nil || got.Spec.ExternalName != "web.shop-rome-ab12cd.svc.rome.example" {
		t.Errorf("the domain of this cluster is not known: %v, %v", got, err)
	}
	plain := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ExternalName: "vault.bank.svc"}}
	if got, err := kinds.ExternalName(mapping, plain, remoteOf); err != nil || got != plain {
		t.Errorf("a Service of another type: %v, %v", got, err)
	}
}
