// SPDX-License-Identifier: Apache-2.0

// Package webhook admits ForeignClusters: it labels them with their cluster ID, and refuses specs that can never work,
// with a reason. It must not read other objects: a problem that depends on them is a condition, not a refusal. The proof
// is foreigncluster_test.go.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/remote"
)

// The documented paths.
const (
	MutatePath   = "/mutate/foreign-cluster"
	ValidatePath = "/validate/foreign-cluster"
)

// Register adds the webhooks of ForeignClusters to a server. local is this cluster's ID.
func Register(server webhook.Server, scheme *runtime.Scheme, local string) {
	decoder := admission.NewDecoder(scheme)
	server.Register(MutatePath, &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		var fc discoveryv1alpha1.ForeignCluster
		if err := decoder.Decode(request, &fc); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if !mutate(&fc) {
			return admission.Allowed("")
		}
		text, err := json.Marshal(&fc)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(request.Object.Raw, text)
	})})
	server.Register(ValidatePath, &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		var fc discoveryv1alpha1.ForeignCluster
		if err := decoder.Decode(request, &fc); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		var old *discoveryv1alpha1.ForeignCluster
		if request.Operation == admissionv1.Update {
			old = &discoveryv1alpha1.ForeignCluster{}
			if err := decoder.DecodeRaw(request.OldObject, old); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
		}
		if problem := validate(old, &fc, local); problem != "" {
			return admission.Denied(problem)
		}
		return admission.Allowed("")
	})})
}

// mutate sets the labels by which a ForeignCluster is found, and reports whether that changed it.
func mutate(fc *discoveryv1alpha1.ForeignCluster) (changed bool) {
	set := func(key, value string) {
		if value != "" && fc.Labels[key] != value {
			metav1.SetMetaDataLabel(&fc.ObjectMeta, key, value)
			changed = true
		}
	}
	if fc.DeletionTimestamp != nil {
		return false
	}
	if fc.Spec.ClusterIdentity != nil {
		set(labels.ClusterID, fc.Spec.ClusterIdentity.ClusterID)
	}
	if fc.Labels[labels.DiscoveryType] == "" {
		set(labels.DiscoveryType, labels.DiscoveryManual)
	}
	return changed
}

// validate returns why the object is refused, or "". old is nil for a new object.
func validate(old, fc *discoveryv1alpha1.ForeignCluster, local string) string {
	if fc.DeletionTimestamp != nil {
		return "" // an invalid object must not block its own deletion
	}
	var was discoveryv1alpha1.ClusterIdentity
	if old != nil {
		if old.Spec.PeeringType != fc.Spec.PeeringType {
			return fmt.Sprintf("spec.peeringType cannot be changed from %s to %s; unpeer, then peer again", old.Spec.PeeringType, fc.Spec.PeeringType)
		}
		if old.Spec.ClusterIdentity != nil {
			was = *old.Spec.ClusterIdentity
		}
	}
	var is discoveryv1alpha1.ClusterIdentity
	if fc.Spec.ClusterIdentity != nil {
		is = *fc.Spec.ClusterIdentity
	}
	switch {
	case was.ClusterID != "" && was.ClusterID != is.ClusterID:
		return fmt.Sprintf("spec.clusterIdentity.clusterID cannot be changed from %s to %q; create another ForeignCluster", was.ClusterID, is.ClusterID)
	case was.ClusterName != "" && was.ClusterName != is.ClusterName:
		return fmt.Sprintf("spec.clusterIdentity.clusterName cannot be changed from %s to %q; create another ForeignCluster", was.ClusterName, is.ClusterName)
	case old == nil && is.ClusterID != "" && is.ClusterID == local:
		return fmt.Sprintf("%s is the ID of this cluster; use the peer command of another cluster", local)
	case old == nil && is.ClusterName != "" && len(validation.IsDNS1123Label(is.ClusterName)) > 0:
		return fmt.Sprintf(
			"spec.clusterIdentity.clusterName %q is not a DNS-1123 label: %s", is.ClusterName,
			strings.Join(validation.IsDNS1123Label(is.ClusterName), "; "),
		)
	}
	if address := fc.Spec.ForeignAuthURL; address != "" && (old == nil || old.Spec.ForeignAuthURL != address) {
		if parsed, err := url.Parse(address); err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil {
			return fmt.Sprintf("spec.foreignAuthUrl %q is not the URL of an authentication service; want https://HOST or https://HOST:PORT", address)
		}
	}
	if proxy := fc.Spec.ForeignProxyURL; proxy != "" && (old == nil || old.Spec.ForeignProxyURL != proxy) {
		if err := remote.CheckProxyURL(proxy); err != nil {
			return fmt.Sprintf("spec.foreignProxyUrl %v; want http://HOST:PORT", err)
		}
	}
	return ""
}
