// SPDX-License-Identifier: Apache-2.0

// Package hosts keeps the hosts of Ingresses apart: an ingress controller merges the paths of all namespaces for a host, so a peer that names a host of another
// takes requests, and what is in them. hosts.go decides, guard.go refuses what peers write and reports what comes later.
//
// It must not know which hosts the administrator lets peers have: a policy of the chart judges that, before. TestAttackNH3 in this package and in
// deployments/liqo/integration prove it.
package hosts
