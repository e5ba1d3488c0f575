// SPDX-License-Identifier: Apache-2.0

// Package unpeer ends a peering: its outgoing direction, or all of it, in this cluster or in both. Its proof are unpeer_test.go and
// inband_test.go of package apiserver.
package unpeer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryac "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/claims"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/kube/ending"
)

type Options struct {
	// Name of the ForeignCluster.
	Name string
	// Timeout bounds the whole action.
	Timeout time.Duration
	// Force sets every deadline of the teardown to zero: for a cluster that will not come back.
	Force bool
}

// Disable ends the outgoing peering with a cluster and keeps its ForeignCluster.
func Disable(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	fc, err := foreign.Get(ctx, c, o.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := AssessVolumes(ctx, c, fc, o.Force, p); err != nil {
		return err
	}
	return endOutgoing(ctx, c, fc, o, p)
}

// OutOfBand ends the outgoing peering, and deletes the ForeignCluster unless the peer still uses this cluster. A peer
// that only uses this cluster loses its access.
func OutOfBand(ctx context.Context, c client.WithWatch, o Options, p action.Progress) error {
	fc, err := foreign.Get(ctx, c, o.Name)
	if err != nil {
		return err
	}
	if fc.Spec.PeeringType != discoveryv1alpha1.OutOfBand {
		return fmt.Errorf("the peering with %q is of type %s, which `unpeer out-of-band` cannot end; use `liqoctl unpeer in-band %s`, or `liqoctl unpeer %s` "+
			"for its outgoing direction only",
			o.Name, fc.Spec.PeeringType, o.Name, o.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()

	if usesOnlyUs(fc) {
		p.Warn(fmt.Sprintf("The remote cluster %q uses this one, and not the reverse: it loses its access and its pods here. "+
			"It can come back while it holds a valid token; to keep it out: liqoctl rotate token", o.Name))
		if o.Force {
			if err := foreign.SetOutgoing(ctx, c, fc, discoveryv1alpha1.PeeringNo, force); err != nil {
				return fmt.Errorf("annotate ForeignCluster %q for a forced end: %w", o.Name, err)
			}
		}
		return forget(ctx, c, fc, o, p)
	}
	if err := AssessVolumes(ctx, c, fc, o.Force, p); err != nil {
		return err
	}
	if err := endOutgoing(ctx, c, fc, o, p); err != nil {
		return err
	}
	active, err := incomingActive(ctx, c, fc)
	if err != nil {
		return err
	}
	if !active {
		return forget(ctx, c, fc, o, p)
	}
	if err := leaveToPeer(ctx, c, fc); err != nil {
		return err
	}
	// If the peer left just before the label was written, no controller would delete the object.
	if active, err = incomingActive(ctx, c, fc); err != nil {
		return err
	}
	if !active {
		return forget(ctx, c, fc, o, p)
	}
	p.Warn(fmt.Sprintf("The remote cluster %q still uses this one, so its ForeignCluster stays until that ends. To end it, run in the remote cluster: "+
		"liqoctl unpeer out-of-band <its name for this cluster>. To revoke its access from here, repeat this command", fc.Name))
	return nil
}

// usesOnlyUs reports whether an incoming peering created the object, and no user here enabled the outgoing direction.
func usesOnlyUs(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming &&
		fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes &&
		foreign.Condition(fc, discoveryv1alpha1.OutgoingPeering).Status == discoveryv1alpha1.StatusNone
}

// incomingActive reads whether the peer uses this cluster. No peer uses an object that is gone.
func incomingActive(ctx context.Context, c client.Reader, fc *discoveryv1alpha1.ForeignCluster) (bool, error) {
	var live discoveryv1alpha1.ForeignCluster
	err := await.Retry(ctx, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(fc), &live) })
	if apierrors.IsNotFound(err) || err == nil && live.UID != fc.UID {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether %q uses this cluster: %w", fc.Name, err)
	}
	return foreign.Condition(&live, discoveryv1alpha1.IncomingPeering).Status != discoveryv1alpha1.StatusNone, nil
}

func force(intent *discoveryac.ForeignClusterApplyConfiguration) {
	intent.WithAnnotations(map[string]string{labels.ForceUnpeer: "true"})
}

// endOutgoing disables the outgoing peering and waits until it is gone.
func endOutgoing(ctx context.Context, c client.WithWatch, fc *discoveryv1alpha1.ForeignCluster, o Options, p action.Progress) error {
	p.Start(fmt.Sprintf("Disabling the outgoing peering with %q", o.Name))
	err := foreign.SetOutgoing(ctx, c, fc, discoveryv1alpha1.PeeringNo, func(intent *discoveryac.ForeignClusterApplyConfiguration) {
		if o.Force {
			force(intent)
		}
	})
	if apierrors.IsNotFound(err) {
		p.Done(fmt.Sprintf("ForeignCluster %q is gone already", o.Name))
		return nil
	}
	if err != nil {
		p.Stop()
		return fmt.Errorf("disable the outgoing peering with %q: %w", o.Name, err)
	}
	p.Done("Peering disabled")
	p.Start(fmt.Sprintf("Waiting until the outgoing peering with %q is gone", o.Name))
	var last *discoveryv1alpha1.ForeignCluster
	err = await.Follow(ctx, c, &discoveryv1alpha1.ForeignClusterList{}, func(fcs []discoveryv1alpha1.ForeignCluster) (bool, error) {
		if len(fcs) == 0 || fcs[0].UID != fc.UID {
			return true, nil
		}
		last = &fcs[0]
		// Conditions of an older spec prove nothing: None may be left from before the peering.
		settled := last.Status.ObservedGeneration >= last.Generation
		return settled && foreign.Condition(last, discoveryv1alpha1.OutgoingPeering).Status == discoveryv1alpha1.StatusNone, nil
	}, client.MatchingFields{"metadata.name": fc.Name})
	if err != nil {
		p.Stop()
		return unpeerError(o, last, "the outgoing peering", err)
	}
	p.Done(fmt.Sprintf("Outgoing peering with %q deactivated", o.Name))
	return nil
}

// leaveToPeer keeps the object for the incoming peering, whose end will delete it.
func leaveToPeer(ctx context.Context, c client.Client, fc *discoveryv1alpha1.ForeignCluster) error {
	err := foreign.SetOutgoing(ctx, c, fc, discoveryv1alpha1.PeeringNo, func(intent *discoveryac.ForeignClusterApplyConfiguration) {
		intent.WithLabels(map[string]string{labels.DiscoveryType: labels.DiscoveryIncoming})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("leave ForeignCluster %q to the incoming peering: %w", fc.Name, err)
	}
	return nil
}

// forget deletes the ForeignCluster and waits until it is gone, and with it all objects of the peer.
func forget(ctx context.Context, c client.WithWatch, fc *discoveryv1alpha1.ForeignCluster, o Options, p action.Progress) error {
	p.Start(fmt.Sprintf("Deleting ForeignCluster %q", o.Name))
	err := await.Retry(ctx, func(ctx context.Context) error {
		err := c.Delete(ctx, fc, await.SameObject(fc.UID))
		if apierrors.IsNotFound(err) || uidChanged(ctx, c, fc.Name, fc.UID, err) {
			return nil
		}
		return err
	})
	if err != nil {
		p.Stop()
		return fmt.Errorf("delete ForeignCluster %q: %w", o.Name, err)
	}
	var last *discoveryv1alpha1.ForeignCluster
	err = await.UntilGone(ctx, c, &discoveryv1alpha1.ForeignClusterList{}, fc, func(now *discoveryv1alpha1.ForeignCluster) { last = now })
	if err != nil {
		p.Stop()
		return unpeerError(o, last, fmt.Sprintf("ForeignCluster %q", o.Name), err)
	}
	p.Done(fmt.Sprintf("ForeignCluster %q deleted", o.Name))
	return nil
}

// uidChanged reports whether a delete failed because only a namesake exists: then the intended object is gone.
func uidChanged(ctx context.Context, c client.Reader, name string, uid types.UID, err error) bool {
	if !apierrors.IsConflict(err) {
		return false
	}
	var live discoveryv1alpha1.ForeignCluster
	err = c.Get(ctx, client.ObjectKey{Name: name}, &live)
	return apierrors.IsNotFound(err) || err == nil && live.UID != uid
}

func unpeerError(o Options, last *discoveryv1alpha1.ForeignCluster, what string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("wait until %s is gone: %w", what, err)
	}
	state := "it could not be read"
	if last != nil {
		state = foreign.Describe(foreign.Condition(last, discoveryv1alpha1.OutgoingPeering)) + "; " +
			foreign.Describe(foreign.Condition(last, discoveryv1alpha1.IncomingPeering))
	}
	try := "the controllers continue to try; if the remote cluster will not come back, add --force"
	if o.Force {
		try = "see the logs of Deployment liqo-controller-manager"
	}
	return fmt.Errorf("%s was not gone after %s: %s; %s (%w)", what, o.Timeout, state, try, err)
}

// AssessVolumes refuses to leave a peer that has data of claims. With force, or if the ForeignCluster is being deleted anyway, it only warns: the data
// stays there.
func AssessVolumes(ctx context.Context, c client.Reader, fc *discoveryv1alpha1.ForeignCluster, force bool, p action.Progress) error {
	if fc.Spec.ClusterIdentity == nil {
		return nil // never reached
	}
	claims, err := claims.List(ctx, c, func(one claims.Claim) bool { return one.ClusterID == fc.Spec.ClusterIdentity.ClusterID })
	if err != nil || len(claims) == 0 {
		return err
	}
	var texts []string
	for _, one := range claims {
		texts = append(texts, one.Key.Namespace+"/"+one.Text())
	}
	if force || ending.Is(fc) {
		p.Warn(fmt.Sprintf("The data of these claims stays in cluster %s, and no pod can use it until the clusters peer again: %s", fc.Name,
			strings.Join(texts, ", ")))
		return nil
	}
	return fmt.Errorf("nothing was changed, because the data of these claims is in cluster %s:\n- %s\ndelete those that you do not need; with --force, "+
		"their data stays there, and no pod can use it until the clusters peer again",
		fc.Name, strings.Join(texts, "\n- "))
}
