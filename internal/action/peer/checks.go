// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/foreign"
	"liqo.io/liqo/internal/action/preflight"
)

// clockTolerance is the difference between the clocks of two clusters that needs no warning.
const clockTolerance = 5 * time.Minute

// check is one possible cause of a failed peering. judge is pure: it returns nil if it found no problem, or if it cannot
// decide.
type check struct {
	name  string
	judge func(*facts) *preflight.Finding
}

var checks = []check{
	{"Liqo in this cluster", checkInstalled},
	{"name", checkName},
	{"cluster ID", checkClusterID},
	{"known clusters", checkKnown},
	{"authentication URL", checkURL},
	{"authentication endpoint", checkReachable},
	{"identity of the endpoint", checkIdentity},
	{"TLS", checkTLS},
	{"clocks", checkClocks},
	{"version", checkVersion},
	{"tenant namespace", checkTenant},
	{"token", checkToken},
}

func judge(f *facts) (failures, warnings []preflight.Finding) {
	for _, check := range checks {
		finding := check.judge(f)
		if finding == nil {
			continue
		}
		finding.Check = check.name
		if finding.Level == preflight.LevelWarning {
			warnings = append(warnings, *finding)
			continue
		}
		finding.Level = preflight.LevelFailure
		failures = append(failures, *finding)
	}
	return failures, warnings
}

func checkInstalled(f *facts) *preflight.Finding {
	if f.localErr == nil {
		return nil
	}
	return preflight.Found(f.localErr.Error(), "peer from a cluster with Liqo; choose it with --context")
}

func checkName(f *facts) *preflight.Finding { return preflight.JudgeName(f.options.Name) }

var clusterIDPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func checkClusterID(f *facts) *preflight.Finding {
	switch {
	case !clusterIDPattern.MatchString(f.options.ClusterID):
		return preflight.Found(fmt.Sprintf("%q is not a UUID in lower case", f.options.ClusterID),
			"copy the ID from the output of `liqoctl generate peer-command` in the other cluster")
	case f.localErr == nil && f.options.ClusterID == f.local.ClusterID:
		return preflight.Found(fmt.Sprintf("%s is this cluster's own ID (%s)", f.options.ClusterID, f.local.ClusterName),
			"run the command in the cluster that will use the other one; choose it with --context")
	}
	return nil
}

func checkKnown(f *facts) *preflight.Finding {
	for _, fc := range f.known {
		id := foreign.IdentityOf(fc)
		switch {
		case fc.Name == f.options.Name && id != "" && id != f.options.ClusterID:
			return preflight.Found(fmt.Sprintf("the ForeignCluster %q belongs to another cluster, %s", fc.Name, id),
				fmt.Sprintf("choose another name, or end that peering first: `liqoctl unpeer out-of-band %s`", fc.Name))
		case id != f.options.ClusterID && fc.Name != f.options.Name:
		case fc.Spec.PeeringType != discoveryv1alpha1.OutOfBand:
			return preflight.Found(fmt.Sprintf("the ForeignCluster %q has the peering type %s", fc.Name, fc.Spec.PeeringType),
				"end that peering first, because the type cannot be changed")
		case fc.DeletionTimestamp != nil:
			return preflight.Found(fmt.Sprintf("the ForeignCluster %q has been in deletion since %s", fc.Name, fc.DeletionTimestamp.UTC().Format(time.RFC3339)),
				"try again when it is gone")
		case f.otherKey != "":
			// The key that is pinned here may be that of another cluster, which registered under this ID, and keeps its rights as a consumer.
			return preflight.Found(fmt.Sprintf("the cluster %s is registered here, with a key of the fingerprint %s, and the token is of a cluster with another "+
				"key", f.options.ClusterID, f.otherKey),
				fmt.Sprintf("if that cluster has replaced its key with `liqoctl rotate identity`, try again when this one follows, after an hour at most; otherwise "+
					"end what was registered first: "+
					"`liqoctl unpeer out-of-band %s`", fc.Name))
		case fc.Name != f.options.Name && fc.Labels[labels.DiscoveryType] == labels.DiscoveryManual:
			return preflight.Found(fmt.Sprintf("the cluster %s is known here under another name, as ForeignCluster %q", id, fc.Name),
				fmt.Sprintf("use that name, or forget it first: `liqoctl unpeer out-of-band %s`", fc.Name))
		}
	}
	return nil
}

// authURLPattern is the validation pattern of the field foreignAuthUrl.
var authURLPattern = regexp.MustCompile(`^https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/.*)?$`)

func checkURL(f *facts) *preflight.Finding {
	raw := f.options.AuthURL
	remedy := "the form is https://HOST or https://HOST:PORT; copy it from the output of `liqoctl generate peer-command`"
	parsed, err := url.Parse(raw)
	switch {
	case err != nil:
		return preflight.Found(fmt.Sprintf("%q is not a URL", raw), remedy)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return preflight.Found("the URL has more than scheme, host, port and path", remedy)
	case parsed.Scheme != "https" || parsed.Hostname() == "" || !authURLPattern.MatchString(raw):
		return preflight.Found(fmt.Sprintf("%q is not the URL of an authentication service", raw), remedy)
	}
	if port := parsed.Port(); port != "" {
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return preflight.Found(fmt.Sprintf("%s is not a port from 1 to 65535", port), remedy)
		}
	}
	return nil
}

func checkTenant(f *facts) *preflight.Finding {
	if f.tenantOwner == "" || f.tenantOwner == f.options.ClusterID {
		return nil
	}
	return preflight.Found(fmt.Sprintf("the namespace %s belongs to another cluster, %s", f.tenantNamespace(), f.tenantOwner),
		"choose another name for this cluster")
}
