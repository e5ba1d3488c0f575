// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
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
)

// What is in the twins of a namespace, before an action gives them up.

// heldNamespace is a twin that a cluster has.
type heldNamespace struct {
	from *vkv1alpha1.NamespaceMap
	// namespace is its name over there.
	namespace string
}

// heldNamespaces are those of a namespace.
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
		said, is := one.Status.CurrentMapping[namespace]
		if is && said.RemoteNamespace != "" && said.Phase != vkv1alpha1.MappingCreationLoopBackOff {
			held = append(held, heldNamespace{one, said.RemoteNamespace})
		}
	}
	return held, nil
}

// loss is what somebody is about to do to a namespace.
type withdrawal struct {
	namespace, liqoNamespace string
	// force loses what is precious, too.
	force bool
}

// remains are what a twin has.
type contents struct {
	cluster, namespace string
	// ours counts what this cluster has put there, by kind; others and volumes are named.
	ours            map[string]int
	others, volumes []string
	// unknown is why nothing is known of it.
	unknown error
}

// weigh tells what will be deleted over there, and refuses if that is more than copies.
func assessImpact(ctx context.Context, c client.Client, l withdrawal, lost []heldNamespace, p Progress) error {
	if len(lost) == 0 {
		return nil
	}
	local, err := LocalIdentity(ctx, c, l.liqoNamespace)
	if err != nil {
		return err
	}
	// At once: each cluster that does not answer takes its time.
	found := make([]*contents, len(lost))
	var looking sync.WaitGroup
	for i, twin := range lost {
		looking.Go(func() { found[i] = readContents(ctx, c, twin, local.ClusterID) })
	}
	looking.Wait()
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
	if l.force {
		for _, text := range precious {
			p.Warn(text)
		}
		return nil
	}
	return fmt.Errorf("namespace %q was left as it is, because more than copies would be lost:\n- %s\nsave what you need, or add --force to lose it",
		l.namespace, strings.Join(precious, "\n- "))
}

// readContents reads, with this cluster's own identity over there, the names of what is in a twin; never what is in Secrets.
func readContents(ctx context.Context, c client.Client, twin heldNamespace, clusterID string) *contents {
	from := twin.from
	found := &contents{cluster: from.Name, namespace: twin.namespace, ours: map[string]int{}}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var secret corev1.Secret
	if found.unknown = c.Get(ctx, client.ObjectKey{Namespace: from.Namespace, Name: remote.SecretName(from.Labels[labels.RemoteID])}, &secret); found.unknown != nil {
		return found
	}
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil {
		found.unknown = fmt.Errorf("identity in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		return found
	}
	there, err := remote.NewConnection(identity, c.Scheme())
	if err != nil {
		found.unknown = err
		return found
	}
	defer there.Reset()
	for _, kind := range kept {
		if found.unknown = found.count(ctx, there.Client(), kind, clusterID); found.unknown != nil {
			return found
		}
	}
	return found
}

// kept are the kinds that a peer can see in its twins.
var kept = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Service"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), networkingv1.SchemeGroupVersion.WithKind("Ingress"),
}

// everywhere are ConfigMaps that clusters put into each namespace.
var everywhere = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

func (r *contents) count(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, clusterID string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		if err := c.List(ctx, list, client.InNamespace(r.namespace), client.Limit(500), client.Continue(list.Continue)); err != nil {
			return fmt.Errorf("list objects of kind %s in %s: %w", kind.Kind, r.namespace, err)
		}
		for i := range list.Items {
			one := &list.Items[i]
			switch {
			case kind.Kind == "ConfigMap" && slices.Contains(everywhere, one.Name):
			case kind.Kind == "Secret" && one.Annotations[corev1.ServiceAccountNameKey] != "" && one.Labels[labels.Origin] == "":
			case kind.Kind == "PersistentVolumeClaim":
				r.volumes = append(r.volumes, one.Name)
			case one.Labels[labels.Origin] == clusterID:
				r.ours[kind.Kind]++
			default:
				r.others = append(r.others, kind.Kind+" "+one.Name)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// text tells what will be deleted, nothing if nothing is.
func (r *contents) text() string {
	var parts []string
	for _, kind := range kept {
		switch n := r.ours[kind.Kind]; n {
		case 0:
		case 1:
			parts = append(parts, "1 "+kind.Kind)
		default:
			parts = append(parts, fmt.Sprintf("%d of kind %s", n, kind.Kind))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("To be deleted in cluster %s, namespace %s: %s", r.cluster, r.namespace, strings.Join(parts, ", "))
}

// precious is what would be lost for good.
func (r *contents) precious() (texts []string) {
	where := fmt.Sprintf("cluster %s, namespace %s", r.cluster, r.namespace)
	if len(r.volumes) > 0 {
		texts = append(texts, fmt.Sprintf("%s: volumes (PersistentVolumeClaims) %s", where, few(r.volumes)))
	}
	if len(r.others) > 0 {
		texts = append(texts, fmt.Sprintf("%s: what this cluster has not put there: %s", where, few(r.others)))
	}
	if r.unknown != nil {
		texts = append(texts, fmt.Sprintf("%s: it cannot be looked at from here: %v", where, r.unknown))
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
