// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/claims"
	"liqo.io/liqo/internal/offloading/contents"
)

// The impact of an action that gives up remote namespaces: what is in them would be deleted.

// withdrawal describes an action of the user that gives up remote namespaces.
type withdrawal struct {
	offloading *offloadingv1alpha1.NamespaceOffloading
	// force also deletes claims with their data, and objects of others.
	force bool
}

// heldNamespaces returns the existing remote namespaces of a local one.
func heldNamespaces(ctx context.Context, c client.Reader, namespace string) ([]contents.Held, error) {
	var all vkv1alpha1.NamespaceMapList
	err := await.Retry(ctx, func(ctx context.Context) error {
		return c.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"})
	})
	if err != nil {
		return nil, fmt.Errorf("list namespace maps: %w", err)
	}
	return contents.HeldBy(all.Items, namespace), nil
}

// impact is what is lost with a remote namespace.
type impact struct {
	contents.Held
	offloadingv1alpha1.RemoteNamespaceContents
	// claims are ours whose data is there.
	claims []claims.Claim
	// unknown is why the contents are not known.
	unknown error
}

// assessImpact reports what will be deleted in the peers, and refuses if that is more than copies of local objects.
func assessImpact(ctx context.Context, c client.WithWatch, w withdrawal, lost []contents.Held, p action.Progress) error {
	if len(lost) == 0 {
		return nil
	}
	namespace := w.offloading.Namespace
	found := count(ctx, c, w.offloading, lost)
	// After the count, which does not include the data of claims: what it took for data of a claim is listed here, unless the user deleted the claim.
	listed, err := claims.List(ctx, c, func(one claims.Claim) bool { return one.Key.Namespace == namespace })
	if err != nil {
		return err
	}
	var losses []string
	for i := range found {
		for _, one := range listed {
			if one.ClusterID == found[i].ClusterID {
				found[i].claims = append(found[i].claims, one)
			}
		}
		if text := found[i].text(); text != "" {
			p.Info(text)
		}
		losses = append(losses, found[i].losses()...)
	}
	if len(losses) == 0 {
		return nil
	}
	if w.force {
		for _, text := range losses {
			p.Warn(text)
		}
		var gone []claims.Claim
		for _, one := range found {
			if one.unknown == nil {
				gone = append(gone, one.claims...)
			} else if len(one.claims) > 0 {
				p.Warn(fmt.Sprintf("cluster %s: the data of these claims stays there", one.Cluster))
			}
		}
		return claims.Delete(ctx, c, namespace, gone, p)
	}
	return fmt.Errorf("namespace %q was not changed, because more than copies would be lost:\n- %s\nsave what you need, or add --force to delete it",
		namespace, strings.Join(losses, "\n- "))
}

// count returns the contents of remote namespaces, which the controller manager reads now: this machine needs no access to the peers.
func count(ctx context.Context, c client.WithWatch, offloading *offloadingv1alpha1.NamespaceOffloading, lost []contents.Held) []impact {
	answer, request, err := requestContents(ctx, c, offloading, lost)
	found := make([]impact, len(lost))
	for i, one := range lost {
		found[i] = impact{Held: one, unknown: err}
		if err == nil {
			found[i].RemoteNamespaceContents, found[i].unknown = contents.Answered(answer, request, one)
		}
	}
	return found
}

// answerTimeout bounds the wait for the controller manager, which gives peers 10 s to answer.
const answerTimeout = 15 * time.Second

var errDeleted = errors.New("the NamespaceOffloading was deleted in the meantime; run the command again")

// requestContents annotates the NamespaceOffloading with a new request, and waits for the answer to this one in its status. An answer to any other
// request is older, and may miss what was created since.
func requestContents(ctx context.Context, c client.WithWatch, offloading *offloadingv1alpha1.NamespaceOffloading,
	lost []contents.Held,
) (answer *offloadingv1alpha1.RemoteContents, request string, err error) {
	limit := answerTimeout
	if deadline, is := ctx.Deadline(); is {
		limit = min(limit, time.Until(deadline)*3/4) // with force, the command goes on without an answer
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request = rand.Text()
	var clusters []string
	for _, one := range lost {
		clusters = append(clusters, one.Cluster)
	}
	value := contents.Ask(request, clusters)
	// With its UID: a conflict if the object was deleted and created again.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": offloading.UID, "annotations": map[string]string{labels.CountRemoteContents: value},
	}})
	if err != nil {
		return nil, "", fmt.Errorf("encode the request: %w", err)
	}
	object := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: offloading.Namespace, Name: offloading.Name}}
	replaced := false
	err = await.Retry(ctx, func(ctx context.Context) error {
		err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(labels.OwnerCLI))
		replaced = apierrors.IsConflict(err)
		if replaced {
			return nil
		}
		return err
	})
	if replaced {
		return nil, "", errDeleted
	}
	if err != nil {
		return nil, "", fmt.Errorf("request its contents, with an annotation on the NamespaceOffloading: %w; see: liqoctl status", err)
	}
	defer withdraw(ctx, c, object, value)
	err = await.Follow(ctx, c, &offloadingv1alpha1.NamespaceOffloadingList{}, func(all []offloadingv1alpha1.NamespaceOffloading) (bool, error) {
		switch {
		case len(all) == 0 || all[0].UID != offloading.UID:
			return false, errDeleted
		case all[0].Annotations[labels.CountRemoteContents] != value:
			return false, errors.New("another command requests the contents at the same time; run the command again")
		}
		answer = all[0].Status.RemoteContents
		return answer != nil && answer.Request == request, nil
	}, client.InNamespace(offloading.Namespace), client.MatchingFields{"metadata.name": offloading.Name})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, "", fmt.Errorf("no answer of Deployment liqo-controller-manager within %s; check that it runs, in a version not older than this liqoctl: "+
			"liqoctl status (%w)", limit.Round(100*time.Millisecond), err)
	}
	return answer, request, err
}

// withdraw removes the request, unless it was replaced. The controller manager then removes its answer. If that fails, a request is left that was
// answered, and the next one replaces it.
func withdraw(ctx context.Context, c client.Client, offloading *offloadingv1alpha1.NamespaceOffloading, value string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), await.CallTimeout)
	defer cancel()
	at := "/metadata/annotations/" + strings.ReplaceAll(labels.CountRemoteContents, "/", "~1")
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": offloading.UID}, {"op": "test", "path": at, "value": value}, {"op": "remove", "path": at},
	})
	if err == nil {
		_ = c.Patch(ctx, offloading, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(labels.OwnerCLI))
	}
}

// text lists the copies that will be deleted; it is empty if there are none.
func (n *impact) text() string {
	var parts []string
	for _, kind := range contents.Kinds() {
		switch count := n.Copies[kind.Kind]; count {
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
	return fmt.Sprintf("To be deleted in cluster %s, namespace %s: %s", n.Cluster, n.Namespace, strings.Join(parts, ", "))
}

// losses lists what the deletion would lose permanently.
func (n *impact) losses() (texts []string) {
	where := fmt.Sprintf("cluster %s, namespace %s", n.Cluster, n.Namespace)
	if len(n.claims) > 0 {
		var names []string
		for i := range n.claims {
			names = append(names, n.claims[i].Text())
		}
		texts = append(texts, fmt.Sprintf("%s: the data of claims %s", where, claims.Few(names, len(names))))
	}
	if n.Claims != nil {
		texts = append(texts, fmt.Sprintf("%s: volumes (PersistentVolumeClaims) %s", where, claims.Few(n.Claims.Names, int(n.Claims.Count))))
	}
	if n.Others != nil {
		texts = append(texts, fmt.Sprintf("%s: objects that this cluster did not create: %s", where, claims.Few(n.Others.Names, int(n.Others.Count))))
	}
	if n.unknown != nil {
		texts = append(texts, fmt.Sprintf("%s: this cluster cannot read the namespace: %v", where, n.unknown))
	}
	return texts
}
