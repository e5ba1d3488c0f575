// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/internal/kube/version"
)

// info returns what a machine reports of itself. A virtual node has no kernel and does not boot. Its version is that of the API server, because rules
// compare the versions of all kubelets; its identifiers stay what they are for as long as the provider has its ID, because collectors take a new one
// for another machine.
func (p *nodeInputs) info() corev1.NodeSystemInfo {
	sum := sha256.Sum256([]byte("liqo virtual node of " + p.clusterID))
	id := hex.EncodeToString(sum[:16])
	return corev1.NodeSystemInfo{
		MachineID: id, SystemUUID: strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-"),
		OSImage: "Liqo virtual node", ContainerRuntimeVersion: "liqo://" + version.Version,
		KubeletVersion: p.version, OperatingSystem: p.os(), Architecture: p.arch(),
	}
}

// infoIntent states all fields that the API server requires, also those that are empty.
func infoIntent(info *corev1.NodeSystemInfo) *coreapply.NodeSystemInfoApplyConfiguration {
	return coreapply.NodeSystemInfo().WithKubeletVersion(info.KubeletVersion).WithOperatingSystem(info.OperatingSystem).WithArchitecture(info.Architecture).
		WithContainerRuntimeVersion(info.ContainerRuntimeVersion).WithOSImage(info.OSImage).WithMachineID(info.MachineID).WithSystemUUID(info.SystemUUID).
		WithKubeProxyVersion("").WithKernelVersion(info.KernelVersion).WithBootID(info.BootID)
}
