// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/proxy"
)

// The impact of an action that gives up remote namespaces: what is in them would be deleted.

// heldNamespace is a remote namespace that exists at a peer.
type heldNamespace struct {
	from *vkv1alpha1.NamespaceMap
	// name of the namespace in the peer.
	name string
}

// heldNamespaces returns the existing remote namespaces of a local one.
func heldNamespaces(ctx context.Context, c client.Reader, namespace string) (held []heldNamespace, err error) {
	var all vkv1alpha1.NamespaceMapList
	err = retry(ctx, func(ctx context.Context) error {
		return c.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"})
	})
	if err != nil {
		return nil, fmt.Errorf("list namespace maps: %w", err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		current, mapped := one.Status.CurrentMapping[namespace]
		if mapped && current.RemoteNamespace != "" && current.Phase != vkv1alpha1.MappingCreationLoopBackOff {
			held = append(held, heldNamespace{one, current.RemoteNamespace})
		}
	}
	return held, nil
}

// withdrawal describes an action of the user that gives up remote namespaces.
type withdrawal struct {
	namespace, liqoNamespace string
	// force also deletes claims with their data, and objects of others.
	force bool
}

// contents are the objects in a remote namespace.
type contents struct {
	cluster, namespace string
	// ours counts the objects that this cluster created there, by kind; others and volumes are names.
	ours            map[string]int
	others, volumes []string
	// claims are ours whose data is there.
	claims []farClaim
	// unknown is the error that kept us from reading the namespace.
	unknown error
}

// assessImpact reports what will be deleted in the peers, and refuses if that is more than copies of local objects.
func assessImpact(ctx context.Context, c client.WithWatch, w withdrawal, lost []heldNamespace, p Progress) error {
	if len(lost) == 0 {
		return nil
	}
	claims, err := farClaims(ctx, c, func(one farClaim) bool { return one.key.Namespace == w.namespace })
	if err != nil {
		return err
	}
	local, err := LocalIdentity(ctx, c, w.liqoNamespace)
	if err != nil {
		return err
	}
	// In parallel, because each cluster that does not answer costs a timeout.
	found := make([]*contents, len(lost))
	var reading sync.WaitGroup
	for i, remote := range lost {
		found[i] = &contents{cluster: remote.from.Name, namespace: remote.name, ours: map[string]int{}}
		for _, one := range claims {
			if one.clusterID == remote.from.Labels[labels.RemoteID] {
				found[i].claims = append(found[i].claims, one)
			}
		}
		reading.Go(func() { found[i].read(ctx, c, remote, local.ClusterID) })
	}
	reading.Wait()
	var precious []string
	for _, one := range found {
		if text := one.text(); text != "" {
			p.Info(text)
		}
		precious = append(precious, one.precious()...)
	}
	if len(precious) == 0 {
		return nil
	}
	if w.force {
		for _, text := range precious {
			p.Warn(text)
		}
		var gone []farClaim
		for _, one := range found {
			if one.unknown == nil {
				gone = append(gone, one.claims...)
			} else if len(one.claims) > 0 {
				p.Warn(fmt.Sprintf("cluster %s: the data of these claims stays there", one.cluster))
			}
		}
		return deleteClaims(ctx, c, w.namespace, gone, p)
	}
	return fmt.Errorf("namespace %q was not changed, because more than copies would be lost:\n- %s\nsave what you need, or add --force to delete it",
		w.namespace, strings.Join(precious, "\n- "))
}

// read lists the objects in a remote namespace with this cluster's own identity at the peer. It reads metadata only, so it never sees the data of Secrets.
func (n *contents) read(ctx context.Context, c client.Client, held heldNamespace, clusterID string) {
	from := held.from
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var secret corev1.Secret
	if n.unknown = c.Get(ctx, client.ObjectKey{Namespace: from.Namespace, Name: remote.SecretName(from.Labels[labels.RemoteID])}, &secret); n.unknown != nil {
		return
	}
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil {
		n.unknown = fmt.Errorf("identity in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		return
	}
	if identity.APIServerURL == proxy.APIServerURL { // at the address of its proxy, this machine may reach any other host
		n.unknown = errors.New("the API server is reached through the tunnel between the clusters only")
		return
	}
	connection, err := remote.NewConnection(identity, c.Scheme())
	if err != nil {
		n.unknown = err
		return
	}
	defer connection.Reset()
	for _, kind := range countedKinds {
		if n.unknown = n.count(ctx, connection.Client(), kind, clusterID); n.unknown != nil {
			return
		}
	}
}

// countedKinds are the kinds that this cluster may list in its remote namespaces.
var countedKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), networkingv1.SchemeGroupVersion.WithKind("Ingress"),
}

// injectedConfigMaps are those that clusters create in every namespace.
var injectedConfigMaps = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

func (n *contents) count(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, clusterID string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		if err := c.List(ctx, list, client.InNamespace(n.namespace), client.Limit(500), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("list objects of kind %s in %s: %w", kind.Kind, n.namespace, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			switch {
			case kind.Kind == "ConfigMap" && slices.Contains(injectedConfigMaps, one.Name):
			case kind.Kind == "Secret" && one.Annotations[corev1.ServiceAccountNameKey] != "" && one.Labels[labels.Origin] == "":
			case kind.Kind == "PersistentVolumeClaim" && slices.ContainsFunc(n.claims, func(ours farClaim) bool { return ours.volume == one.Annotations[labels.VirtualVolume] }):
			case kind.Kind == "PersistentVolumeClaim":
				n.volumes = append(n.volumes, one.Name)
			case one.Labels[labels.Origin] == clusterID:
				n.ours[kind.Kind]++
			default:
				n.others = append(n.others, kind.Kind+" "+one.Name)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// text lists the copies that will be deleted; it is empty if there are none.
func (n *contents) text() string {
	var parts []string
	for _, kind := range countedKinds {
		switch count := n.ours[kind.Kind]; count {
		case 0:
		case 1:
			parts = append(parts, "1 "+kind.Kind)
		default:
			parts = append(parts, fmt.Sprintf("%d of kind %s", count, kind.Kind))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("To be deleted in cluster %s, namespace %s: %s", n.cluster, n.namespace, strings.Join(parts, ", "))
}

// precious lists what the deletion would lose permanently.
func (n *contents) precious() (texts []string) {
	where := fmt.Sprintf("cluster %s, namespace %s", n.cluster, n.namespace)
	if len(n.claims) > 0 {
		var names []string
		for i := range n.claims {
			names = append(names, n.claims[i].text())
		}
		texts = append(texts, fmt.Sprintf("%s: the data of claims %s", where, few(names)))
	}
	if len(n.volumes) > 0 {
		texts = append(texts, fmt.Sprintf("%s: volumes (PersistentVolumeClaims) %s", where, few(n.volumes)))
	}
	if len(n.others) > 0 {
		texts = append(texts, fmt.Sprintf("%s: objects that this cluster did not create: %s", where, few(n.others)))
	}
	if n.unknown != nil {
		texts = append(texts, fmt.Sprintf("%s: this machine cannot read the namespace: %v", where, n.unknown))
	}
	return texts
}

func few(names []string) string {
	const most = 10
	slices.Sort(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
