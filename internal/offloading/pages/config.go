// SPDX-License-Identifier: Apache-2.0

package pages

import "fmt"

// Config returns what /configz shows: of a KubeletConfiguration, what this process does. Fields that concern a machine or a container runtime are
// missing, because there is none.
func Config(node Node) map[string]any {
	config := map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"enableServer": true, "port": node.Port,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true}, "x509": map[string]any{},
		},
		"authorization":                map[string]any{"mode": "Webhook"},
		"registerNode":                 true,
		"nodeLeaseDurationSeconds":     node.LeaseSeconds,
		"nodeStatusUpdateFrequency":    fmt.Sprintf("%ds", node.StatusSeconds),
		"enableDebuggingHandlers":      true,
		"enableSystemLogHandler":       false,
		"enableProfilingHandler":       false,
		"enableDebugFlagsHandler":      false,
		"serverTLSBootstrap":           node.SignedServing,
		"enableControllerAttachDetach": false,
	}
	if node.Pods > 0 {
		config["maxPods"] = node.Pods
	}
	return map[string]any{"kubeletconfig": config}
}
