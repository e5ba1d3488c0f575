// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/peering/auth"
)

// endpointTimeout bounds each request to the provider's authentication service.
const endpointTimeout = 5 * time.Second

const (
	// settleTime is how long an address may refuse: that of a Service made just now is known before all nodes serve it.
	settleTime     = 4 * time.Second
	settleInterval = 200 * time.Millisecond
)

// facts are all that the checks judge.
type facts struct {
	options PeerOptions

	local    discoveryv1alpha1.ClusterIdentity
	localErr error
	// known are the ForeignClusters of this cluster; same is the one of that cluster ID.
	known []*discoveryv1alpha1.ForeignCluster
	same  *discoveryv1alpha1.ForeignCluster
	// tenantOwner is the cluster that has the tenant namespace of this name, if any.
	tenantOwner string

	ids    auth.IDs
	idsErr error
	now    time.Time // when ids came
	asked  bool      // whether the token was tried
	token  error     // what the provider said to it
}

// runPreflight collects the facts, judges them, and tells the warnings. Nothing is changed, on either side.
func runPreflight(ctx context.Context, c client.Client, o PeerOptions, p Progress) (*facts, error) {
	p.Start("Checking both clusters")
	f := &facts{options: o}
	if err := f.readLocal(ctx, c); err != nil {
		p.Stop()
		return nil, err
	}
	f.askProvider(ctx)
	failures, warnings := judge(f)
	for _, warning := range warnings {
		p.Warn(warning.String())
	}
	if len(failures) > 0 {
		p.Stop()
		return nil, &PreflightError{Findings: failures}
	}
	p.Done(fmt.Sprintf("All %d checks passed", len(checks)))
	return f, nil
}

// readLocal reads what this cluster knows. Only an API server that does not answer is an error.
func (f *facts) readLocal(ctx context.Context, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var (
		list   discoveryv1alpha1.ForeignClusterList
		listed error
		all    sync.WaitGroup
	)
	all.Go(func() { f.local, f.localErr = LocalIdentity(ctx, c, f.options.Namespace) })
	all.Go(func() { listed = c.List(ctx, &list) })
	all.Wait()
	switch {
	case f.localErr != nil && !errors.Is(f.localErr, ErrNotInstalled):
		return f.localErr
	case notServed(listed):
		f.localErr = errNotServed
		return nil
	case listed != nil:
		return fmt.Errorf("list ForeignClusters: %w", listed)
	}
	for i := range list.Items {
		fc := &list.Items[i]
		f.known = append(f.known, fc)
		if id := identityOf(fc); id == f.options.ClusterID || id == "" && fc.Name == f.options.Name {
			f.same = fc
		}
	}
	var namespace corev1.Namespace
	err := c.Get(ctx, client.ObjectKey{Name: f.tenantNamespace()}, &namespace)
	if client.IgnoreNotFound(err) != nil && !apierrors.IsInvalid(err) {
		return fmt.Errorf("read namespace %s: %w", f.tenantNamespace(), err)
	}
	f.tenantOwner = namespace.Labels[labels.ClusterID]
	return nil
}

// tenantNamespace is where this cluster will keep what belongs to the peer.
func (f *facts) tenantNamespace() string {
	return discoveryv1alpha1.ClusterIdentity{ClusterID: f.options.ClusterID, ClusterName: f.options.Name}.TenantNamespace()
}

// askProvider asks who answers at the URL, and, if it is whom we were told, whether it takes the token.
func (f *facts) askProvider(ctx context.Context) {
	if checkURL(f) != nil {
		f.idsErr = errNotAsked
		return
	}
	endpoint, err := auth.NewClient(f.options.AuthURL, auth.ClientOptions{InsecureSkipTLSVerify: true, Timeout: endpointTimeout})
	if err != nil {
		f.idsErr = err
		return
	}
	defer endpoint.Close()
	f.ids, f.idsErr = patientIDs(ctx, endpoint.IDs, settleTime)
	f.now = time.Now()
	// The token is for one cluster only: whoever else answers there must not see it.
	if f.localErr != nil || checkReachable(f) != nil || checkIdentity(f) != nil || checkVersion(f) != nil || checkClusterID(f) != nil {
		return
	}
	// Nothing is pinned by a dry run, so any key will do.
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err == nil {
		_, err = endpoint.Register(ctx, auth.Registration{Cluster: f.local, Token: f.options.Token, Key: key, DryRun: true})
	}
	f.asked, f.token = true, err
}

// patientIDs asks again while nobody answers, which must be said at once: silence is not waited for a second time.
func patientIDs(ctx context.Context, ask func(context.Context) (auth.IDs, error), most time.Duration) (auth.IDs, error) {
	for began := time.Now(); ; {
		ids, err := ask(ctx)
		if !errors.Is(err, auth.ErrUnreachable) || time.Since(began) > most {
			return ids, err
		}
		select {
		case <-ctx.Done():
			return ids, err
		case <-time.After(settleInterval):
		}
	}
}

// errNotAsked: another check says why.
var errNotAsked = errors.New("not asked")

// notServed says whether the API server does not know the kind.
func notServed(err error) bool {
	return err != nil && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.ReasonForError(err) == "NotFound" && isPathMissing(err))
}

// isPathMissing tells a missing path from a missing object.
func isPathMissing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

func checkReachable(f *facts) *Finding {
	if f.idsErr == nil || errors.Is(f.idsErr, errNotAsked) {
		return nil
	}
	finding := found(fmt.Sprintf("%s gives no answer: %v", f.options.AuthURL, f.idsErr),
		"check the URL, the Service liqo-auth of the other cluster and the firewalls between; "+
			"if only the cluster can reach it, not this machine, add --skip-preflight")
	if f.options.SkipPreflight && errors.Is(f.idsErr, auth.ErrUnreachable) {
		finding.Level = LevelWarning
	}
	return finding
}

func checkIdentity(f *facts) *Finding {
	if f.idsErr != nil || f.ids.ClusterID == f.options.ClusterID {
		return nil
	}
	return found(fmt.Sprintf("%s answers as cluster %s (%s), not as %s", f.options.AuthURL, f.ids.ClusterID, f.ids.ClusterName, f.options.ClusterID),
		"run `liqoctl generate peer-command` in the other cluster again, and here what it prints")
}

func checkClocks(f *facts) *Finding {
	if f.idsErr != nil || f.ids.Date.IsZero() {
		return nil
	}
	apart := f.now.Sub(f.ids.Date).Round(time.Second)
	if apart.Abs() <= clockTolerance {
		return nil
	}
	direction := "behind"
	if apart < 0 {
		direction = "ahead of"
	}
	finding := found(fmt.Sprintf("the provider's clock is %s %s this machine's", apart.Abs(), direction),
		"the peering bears it, but certificates and logs do not: set the clocks by NTP")
	finding.Level = LevelWarning
	return finding
}

func checkToken(f *facts) *Finding {
	if !f.asked || f.token == nil {
		return nil
	}
	again := "run `liqoctl generate peer-command` in the other cluster again, and here what it prints"
	switch {
	case errors.Is(f.token, auth.ErrEmptyDenied):
		return found("the provider wants a token, and the one given is empty", again)
	case errors.Is(f.token, auth.ErrDenied):
		return found("the provider does not accept the token", again)
	case errors.Is(f.token, auth.ErrConflict):
		return found(fmt.Sprintf("the provider knows the cluster %s with another key: %v", f.local.ClusterID, f.token),
			"if this cluster was installed anew, run in the other one `liqoctl unpeer out-of-band "+f.local.ClusterName+"`, so that it forgets the old key")
	case errors.Is(f.token, auth.ErrTooMany):
		return found("the provider is asked too often to check the token", "try again in a minute")
	}
	finding := found(fmt.Sprintf("the token could not be checked: %v", f.token), "see the logs of Deployment liqo-auth in the other cluster")
	if f.options.SkipPreflight && errors.Is(f.token, auth.ErrUnreachable) {
		finding.Level = LevelWarning
	}
	return finding
}

func checkVersion(f *facts) *Finding {
	if f.idsErr != nil {
		return nil
	}
	if _, err := version.Compatible(f.ids.Protocol, f.ids.Version); err != nil {
		return found(err.Error(), "`liqoctl upgrade` does it")
	}
	return nil
}

// checkTLS warns only: the service signs its certificate itself, and the peering does not rest on it. But one
// that is out of date tells of a clock or of a service that nobody looks after.
func checkTLS(f *facts) *Finding {
	certificate := f.ids.TLS
	if f.idsErr != nil || certificate.NotAfter.IsZero() || !f.now.After(certificate.NotAfter) && !f.now.Before(certificate.NotBefore) {
		return nil
	}
	finding := found(fmt.Sprintf("the certificate of %s is good from %s to %s only", f.options.AuthURL,
		certificate.NotBefore.UTC().Format(time.DateOnly), certificate.NotAfter.UTC().Format(time.DateOnly)),
		"look at the clock of this machine; in the other cluster, restart Deployment liqo-auth or renew the certificate of its Ingress")
	finding.Level = LevelWarning
	return finding
}
