// SPDX-License-Identifier: Apache-2.0

// Package installed knows the installation of Liqo in a cluster: its identity, its keys, its addresses, and the names of its
// workloads. It changes nothing. Its proof is generate_test.go of package apiserver.
package installed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/kube/nodeready"
	"liqo.io/liqo/internal/peering/auth/published"
)

// Names of objects of the chart.
const (
	identityAppName = "clusterid-configmap"
	ManagerName     = "liqo-controller-manager"
	AuthName        = "liqo-auth"
	RouteName       = "liqo-route"
	// NetworksName is the ConfigMap in which the chart records the networks of this cluster.
	NetworksName = "liqo-networks"
)

// ErrNotInstalled means that an action needs Liqo in this cluster, and it is not installed.
var ErrNotInstalled = errors.New("liqo is not installed")

var ErrNotServed = fmt.Errorf("%w in this cluster: its API server does not know ForeignClusters; run `liqoctl install`", ErrNotInstalled)

func Keys(ctx context.Context, c client.Reader, namespace string) (clusterkey.Keys, error) {
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterkey.Secret}, &secret); err != nil {
		return clusterkey.Keys{}, fmt.Errorf("read the key of this cluster from Secret %s/%s: %w; the Deployment liqo-controller-manager creates it when it "+
			"starts: see its logs",
			namespace, clusterkey.Secret, err)
	}
	return clusterkey.Parse(&secret)
}

// Identity reads the ID and name of this cluster from the ConfigMap of the chart.
func Identity(ctx context.Context, c client.Reader, namespace string) (discoveryv1alpha1.ClusterIdentity, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{labels.AppName: identityAppName}); err != nil {
		return discoveryv1alpha1.ClusterIdentity{}, fmt.Errorf("read this cluster's identity in namespace %s: %w", namespace, err)
	}
	if len(list.Items) == 0 {
		return discoveryv1alpha1.ClusterIdentity{}, fmt.Errorf(
			"%w in namespace %s of this cluster: it has no ConfigMap labelled %s=%s; run `liqoctl install`, or name another namespace with --namespace",
			ErrNotInstalled, namespace, labels.AppName, identityAppName)
	}
	data := list.Items[0].Data
	identity := discoveryv1alpha1.ClusterIdentity{ClusterID: data["CLUSTER_ID"], ClusterName: data["CLUSTER_NAME"]}
	if identity.ClusterID == "" || identity.ClusterName == "" {
		return identity, fmt.Errorf("the ConfigMap %s/%s lacks CLUSTER_ID or CLUSTER_NAME; `liqoctl upgrade` restores it", namespace, list.Items[0].Name)
	}
	return identity, nil
}

// AuthURL is the URL at which other clusters reach the authentication service of this one. services holds the Service of
// authentication, if it exists.
func AuthURL(ctx context.Context, c client.Reader, namespace string, services []corev1.Service) (string, error) {
	if len(services) == 0 {
		return "", fmt.Errorf("%w in namespace %s of this cluster: it has no Service %s; run `liqoctl install`, or name another namespace with --namespace",
			ErrNotInstalled, namespace, published.Service)
	}
	return published.URL(ctx, c, c, &services[0])
}

func NodeReady(node *corev1.Node) bool {
	return nodeready.Is(node.Status.Conditions)
}

// NotServed reports whether the API server does not know the kind.
func NotServed(err error) bool {
	return err != nil && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.ReasonForError(err) == "NotFound" && isPathMissing(err))
}

// args of the containers of a Deployment.
func Arguments(deployments []appsv1.Deployment, name string) (args []string) {
	for i := range deployments {
		if deployments[i].Name == name {
			for _, container := range deployments[i].Spec.Template.Spec.Containers {
				args = append(args, container.Args...)
			}
		}
	}
	return args
}

// Argument is the value of a flag in the arguments of a container.
func Argument(args []string, flag string) string {
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			return value
		}
		if arg == "--"+flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// isPathMissing distinguishes a missing path from a missing object.
func isPathMissing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}
