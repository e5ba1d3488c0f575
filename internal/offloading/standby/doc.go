// SPDX-License-Identifier: Apache-2.0

// Package standby keeps the pods that use our name server from losing the DNS if it is down (ADR 41). Its Service has, besides the pods of the name server,
// those of the cluster's DNS, as endpoints that end but still serve: kube-proxy sends packets there only while no pod of the name server is ready. Nothing of
// ours has to run for that. Without such endpoints, no pod is made to use the name server.
//
// It must not know what names mean. plan.go is pure. TestPlan and TestStandby prove it; that kube-proxy follows, `test/offload` shows on clusters.
package standby
