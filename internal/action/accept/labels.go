// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/offloading/choice"
)

const (
	// ownerLabels owns the labels that were accepted. Another run of the command leaves them as they are.
	ownerLabels = "liqoctl-labels"
	// mostAccepted is how many entries spec.acceptedLabels may have.
	mostAccepted = 100
)

// LabelWords are what an administrator wants for the labels of the other cluster.
type LabelWords struct {
	// Accept those that it presents at the first peering.
	Accept bool
}

// Apply shows the labels that the provider of a new peering presents, and records them as accepted: the administrator who peers with a cluster trusts it as it
// is now. With a list of accepted labels, they have decided before, and what the provider has added or changed since is only shown. It never fails a
// peering that is
// established.
func (w LabelWords) Apply(ctx context.Context, c client.WithWatch, name string, p action.Progress) {
	if !w.Accept {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	fc, err := foreign.Get(ctx, c, name)
	if err != nil {
		p.Warn(fmt.Sprintf("The labels of cluster %q are not accepted: %v", name, err))
		return
	}
	node, err := labelled(ctx, c, fc)
	if err != nil {
		p.Warn(fmt.Sprintf("The labels of cluster %q are not accepted: %v; run the command again", name, err))
		return
	}
	_, hidden := choice.View(node, fc.Spec.AcceptedLabels)
	switch {
	case len(hidden) == 0:
	case fc.Spec.AcceptedLabels != nil:
		p.Info(fmt.Sprintf("Labels of cluster %q that cluster selectors do not consider: %s; to accept them: %s", name, strings.Join(hidden, ", "),
			choice.AcceptCommand(name, hidden)))
	default:
		if err := writeLabels(ctx, c, fc, hidden); err != nil {
			p.Warn(fmt.Sprintf("The labels of cluster %q are not accepted: %v", name, err))
			return
		}
		p.Info(fmt.Sprintf("Labels of cluster %q, which cluster selectors consider from now on: %s", name, strings.Join(hidden, ", ")))
	}
}

// labelled waits until the virtual node of a cluster has its labels.
func labelled(ctx context.Context, c client.WithWatch, fc *discoveryv1alpha1.ForeignCluster) (settled *corev1.Node, err error) {
	id := ""
	if fc.Spec.ClusterIdentity != nil {
		id = fc.Spec.ClusterIdentity.ClusterID
	}
	err = await.Follow(ctx, c, &corev1.NodeList{}, func(nodes []corev1.Node) (bool, error) {
		for i := range nodes {
			if choice.Settled(&nodes[i]) {
				settled = &nodes[i]
			}
		}
		return settled != nil, nil
	}, client.MatchingLabels{labels.Type: labels.TypeVirtualNode, labels.RemoteClusterID: id})
	if err != nil {
		return nil, fmt.Errorf("its virtual node has no labels yet: %w", err)
	}
	return settled, nil
}

// Labels lets cluster selectors consider labels of a peer. Each must be one that the peer presents now, so that a mistyped one, or one that the peer has
// changed again since, is not accepted.
func Labels(ctx context.Context, c client.WithWatch, name string, wanted []string, p action.Progress) error {
	fc, err := foreign.Get(ctx, c, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	node, err := labelled(ctx, c, fc)
	if err != nil {
		return fmt.Errorf("labels of cluster %q: %w; see `liqoctl status peer %[1]s`", name, err)
	}
	presented := presentedBy(node)
	for _, one := range wanted {
		if !slices.Contains(presented, one) {
			return fmt.Errorf("%.100q is not a label that cluster %q presents now, which are %s; nothing was changed", one, name,
				cmp.Or(strings.Join(presented, ", "), "none"))
		}
	}
	if err := writeLabels(ctx, c, fc, wanted); err != nil {
		return err
	}
	p.Done(fmt.Sprintf("Labels of cluster %q that cluster selectors consider from now on: %s", name, strings.Join(wanted, ", ")))
	return nil
}

// presentedBy returns the labels that a provider gives its virtual node, as KEY=VALUE, sorted.
func presentedBy(node *corev1.Node) (all []string) {
	for key := range strings.SplitSeq(node.Annotations[labels.ProviderLabels], ",") {
		if value, has := node.Labels[key]; has {
			all = append(all, key+"="+value)
		}
	}
	slices.Sort(all)
	return all
}

// writeLabels adds labels to those that are accepted of a peer. A value takes the place of an earlier one.
func writeLabels(ctx context.Context, c client.Client, fc *discoveryv1alpha1.ForeignCluster, wanted []string) error {
	err := await.Retry(ctx, func(ctx context.Context) error {
		var live discoveryv1alpha1.ForeignCluster
		if err := c.Get(ctx, client.ObjectKeyFromObject(fc), &live); err != nil {
			return err
		}
		before := live.DeepCopy()
		live.Spec.AcceptedLabels = withLabels(live.Spec.AcceptedLabels, wanted)
		if len(live.Spec.AcceptedLabels) > mostAccepted {
			return fmt.Errorf("with %d labels the list would be longer than %d; accept groups of them instead, as PREFIX/*, in spec.acceptedLabels", len(wanted),
				mostAccepted)
		}
		if slices.Equal(before.Spec.AcceptedLabels, live.Spec.AcceptedLabels) {
			return nil
		}
		return c.Patch(ctx, &live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(ownerLabels))
	})
	if err != nil {
		return fmt.Errorf("write labels into ForeignCluster %q: %w", fc.Name, err)
	}
	return nil
}

// withLabels returns a list of accepted labels with others. A missing list stands for the default one, which stays in force.
func withLabels(accepted, wanted []string) []string {
	keys := map[string]bool{}
	for _, one := range wanted {
		key, _, _ := strings.Cut(one, "=")
		keys[key] = true
	}
	all := slices.DeleteFunc(slices.Clone(choice.Accepted(accepted)), func(one string) bool {
		key, _, valued := strings.Cut(one, "=")
		return valued && keys[key] && !slices.Contains(wanted, one)
	})
	return added(all, wanted)
}

// ShowChoice explains why no cluster was chosen: which labels selectors consider, and which they do not.
func ShowChoice(ctx context.Context, c client.Client, selector *corev1.NodeSelector, p action.Progress) {
	var nodes corev1.NodeList
	var peers discoveryv1alpha1.ForeignClusterList
	err := await.Retry(ctx, func(ctx context.Context) error {
		if err := c.List(ctx, &nodes, client.MatchingLabels{labels.Type: labels.TypeVirtualNode}); err != nil {
			return err
		}
		return c.List(ctx, &peers)
	})
	if err != nil {
		p.Warn(fmt.Sprintf("The labels to select by are not known: list virtual nodes and peers: %v", err))
		return
	}
	const most = 10
	for i := range nodes.Items[:min(len(nodes.Items), most)] {
		node := &nodes.Items[i]
		fc := discoveryv1alpha1.OwnerOf(peers.Items, node.Labels[labels.RemoteClusterID])
		if fc == nil {
			continue
		}
		view, hidden := choice.View(node, fc.Spec.AcceptedLabels)
		considered := slices.DeleteFunc(presentedBy(node), func(one string) bool { return slices.Contains(hidden, one) })
		named := choice.Named(selector, hidden)
		without, _ := choice.Fits(selector, view)
		with, _ := choice.Fits(selector, node)
		switch {
		case with && !without && len(named) > 0:
			p.Warn(fmt.Sprintf("Cluster %q has the labels %s, but they are not accepted; if you trust it with this namespace: %s", fc.Name,
				strings.Join(named, ", "), choice.AcceptCommand(fc.Name, named)))
		case len(hidden) > 0:
			p.Info(fmt.Sprintf("Cluster %q can be selected by %s; not accepted are %s (`%s`)", fc.Name,
				cmp.Or(strings.Join(considered, ", "), "none of its labels"), strings.Join(hidden, ", "), choice.AcceptCommand(fc.Name, hidden)))
		default:
			p.Info(fmt.Sprintf("Cluster %q can be selected by %s", fc.Name, cmp.Or(strings.Join(considered, ", "),
				"the labels that you give its node, and by no other")))
		}
	}
	if more := len(nodes.Items) - most; more > 0 {
		p.Info(fmt.Sprintf("%d more virtual nodes are not shown", more))
	}
}
