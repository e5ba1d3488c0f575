// SPDX-License-Identifier: Apache-2.0

package plan

import (
	_ "embed" // the script of the pods
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/data"
)

const (
	// RoleName is the cluster role that the controller has in the namespace of a move, while it lasts.
	RoleName = "liqo-controller-manager-offloaded"
	account  = "liqo-controller-manager"
	// Port receives the data.
	Port = 2222
	// ServerKey, ClientKey, Authorized and Known are the keys of the two Secrets: what the server proves itself with, what the client does, and what each
	// accepts of the other.
	ServerKey, ClientKey, Authorized, Known = "server", "client", "authorized", "known"

	keysPath = "/keys"
	dataPath = "/data"
)

// Modes of a pod that reads.
const (
	modeMeasure = "measure"
	modeCopy    = "copy"
	modeFinish  = "finish"
)

//go:embed copy.sh
var script string

// ID is the name of the objects of a move. One claim has one move at a time, but the objects of an earlier one may still be there.
func ID(move *v1alpha1.VolumeMove) string {
	const some = 8
	uid := string(move.UID)
	return "liqo-move-" + uid[:min(len(uid), some)]
}

// SourceVolumeName is the name of the second record of the source. Volumes have one namespace, so it has the whole UID.
func SourceVolumeName(move *v1alpha1.VolumeMove) string { return "liqo-move-" + string(move.UID) }

// SourceName and TargetName are the claims of the move.
func SourceName(move *v1alpha1.VolumeMove) string { return ID(move) + "-source" }

// TargetName is the claim of the target.
func TargetName(move *v1alpha1.VolumeMove) string { return ID(move) + "-target" }

// meta is the metadata of an object of the move.
func (f *Facts) meta(name, role string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: f.Move.Namespace, Name: name, Labels: map[string]string{
		labels.AppPartOf: labels.PartOf, labels.Move: string(f.Move.UID),
	}}
	if role != "" {
		m.Labels[labels.MoveRole] = role
	}
	return m
}

func (f *Facts) grant() Object {
	return &rbacv1.RoleBinding{
		ObjectMeta: f.meta(ID(f.Move), ""),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: RoleName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: f.Install}},
	}
}

// targetClaim is the claim of the target: all that the user's asks for. Its data stays when the move ends, so it has the labels of the user's, too.
func (f *Facts) targetClaim() Object {
	meta := f.meta(TargetName(f.Move), labels.MoveRoleTarget)
	maps.Copy(meta.Labels, f.Claim.Labels)
	maps.Copy(meta.Labels, f.meta("", labels.MoveRoleTarget).Labels)
	meta.Annotations = map[string]string{data.SelectedNode: f.Move.Spec.TargetNode}
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: f.claimSpec("")}
}

func (f *Facts) sourceClaim() Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: f.meta(SourceName(f.Move), labels.MoveRoleSource), Spec: f.claimSpec(SourceVolumeName(f.Move))}
}

func (f *Facts) claimSpec(volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: f.Claim.Spec.StorageClassName, AccessModes: f.Claim.Spec.AccessModes, VolumeMode: f.Claim.Spec.VolumeMode, VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{Requests: f.Claim.Spec.Resources.Requests},
	}
}

// record is a volume with the data of another one. Its reclaim policy is Retain, so its deletion deletes no data.
func record(name string, of *corev1.PersistentVolume, claim *corev1.ObjectReference) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(of.Labels), Annotations: map[string]string{
		data.Provisioned: data.Provisioner, labels.VolumeData: data.Name(of),
	}}}
	if data.Name(of) == name {
		delete(volume.Annotations, labels.VolumeData)
	}
	for _, key := range []string{labels.RemoteStorageClass, labels.RemoteNamespace, labels.RemoteVolume, labels.RemoteDataSource} {
		if value := of.Annotations[key]; value != "" {
			volume.Annotations[key] = value
		}
	}
	if data.IsRemote(of) {
		volume.Annotations[labels.RemoteClaim] = data.RemoteClaim(of)
	}
	of.Spec.DeepCopyInto(&volume.Spec)
	volume.Spec.ClaimRef, volume.Spec.PersistentVolumeReclaimPolicy = claim, corev1.PersistentVolumeReclaimRetain
	return volume
}

// sourceVolume is the second record of the source. It knows what the first one was, to bring it back.
func (f *Facts) sourceVolume() Object {
	volume := record(SourceVolumeName(f.Move), f.Volume, &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: f.Move.Namespace, Name: SourceName(f.Move)})
	if volume.Labels == nil {
		volume.Labels = map[string]string{}
	}
	volume.Labels[labels.Move] = string(f.Move.UID)
	volume.Annotations[labels.ReclaimPolicy] = string(f.Volume.Spec.PersistentVolumeReclaimPolicy)
	return volume
}

// oldVolume is the volume of the claim as it was.
func (f *Facts) oldVolume() Object { return f.claimed(f.SourceVolume) }

// movedVolume is the volume of the claim with the data of the target.
func (f *Facts) movedVolume() Object { return f.claimed(f.TargetVolume) }

// claimed is the volume of the user's claim with the data of another volume.
func (f *Facts) claimed(of *corev1.PersistentVolume) Object {
	volume := record(f.Move.Status.Volume, of, &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: f.Move.Namespace, Name: f.Move.Name, UID: f.Move.Status.ClaimUID,
	})
	delete(volume.Labels, labels.Move)
	if f.SourceVolume == nil { // an administrator has deleted it; Retain deletes nothing
		return volume
	}
	if policy := f.SourceVolume.Annotations[labels.ReclaimPolicy]; policy != "" {
		volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(policy)
	}
	return volume
}

// withPolicy is the same volume with another policy.
func withPolicy(volume *corev1.PersistentVolume, policy corev1.PersistentVolumeReclaimPolicy) Object {
	changed := volume.DeepCopy()
	changed.Spec.PersistentVolumeReclaimPolicy = policy
	return changed
}

// handOver is the volume of the target before the claim gets its data. From then on pods may write there: the mark is set first, so that nothing takes the source
// for the current data again.
func (f *Facts) handOver() Object {
	changed := f.TargetVolume.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[labels.ReclaimPolicy] = string(changed.Spec.PersistentVolumeReclaimPolicy)
	changed.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	return changed
}

// remembered is the second record of the source with the policy that the volume is to have again.
func (f *Facts) remembered(policy corev1.PersistentVolumeReclaimPolicy) Object {
	changed := f.SourceVolume.DeepCopy()
	changed.Annotations[labels.ReclaimPolicy] = string(policy)
	return changed
}

// namedFor is the claim that holds the data, if it does not name the user's claim yet.
func namedFor(real, claim *corev1.PersistentVolumeClaim) Object {
	if real.Labels[labels.VirtualClaimName] == claim.Name || real.Annotations[labels.VirtualClaimName] == claim.Name {
		return nil
	}
	changed := real.DeepCopy()
	if len(validation.IsValidLabelValue(claim.Name)) == 0 {
		changed.Labels[labels.VirtualClaimName] = claim.Name
		return changed
	}
	delete(changed.Labels, labels.VirtualClaimName)
	changed.Annotations[labels.VirtualClaimName] = claim.Name
	return changed
}

// secret has the keys of one pod. Only the cluster that runs the pod gets them: with the keys of the one that sends, another provider could write into the copy.
func (f *Facts) secret(role string) *corev1.Secret {
	meta, at := f.meta(ID(f.Move)+"-"+role, role), f.Move.Status.From
	if role == labels.MoveRoleTarget {
		at = f.Move.Status.To
	}
	meta.Annotations = map[string]string{labels.ReflectTo: at}
	if at == here {
		meta.Annotations = map[string]string{labels.SkipReflection: "its pod runs here"}
	}
	return &corev1.Secret{ObjectMeta: meta, Immutable: new(true)}
}

// Secrets are the two of the move, from keys: of the server, of the client, and what each accepts of the other.
func Secrets(move *v1alpha1.VolumeMove, server, client, authorized, known []byte) []*corev1.Secret {
	f := Facts{Move: move}
	source, target := f.secret(labels.MoveRoleSource), f.secret(labels.MoveRoleTarget)
	source.Data = map[string][]byte{ClientKey: client, Known: known}
	target.Data = map[string][]byte{ServerKey: server, Authorized: authorized}
	return []*corev1.Secret{source, target}
}

func (f *Facts) service() Object {
	return &corev1.Service{ObjectMeta: f.meta(ID(f.Move), ""), Spec: corev1.ServiceSpec{
		Selector: map[string]string{labels.Move: string(f.Move.UID), labels.MoveRole: labels.MoveRoleTarget},
		Ports:    []corev1.ServicePort{{Name: "ssh", Port: Port, TargetPort: intstr.FromInt32(Port)}},
	}}
}

// policy admits one address, the pod that sends, to the pod that receives; none while address is empty.
func (f *Facts) policy(address string) Object {
	policy := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: f.meta(ID(f.Move), ""),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labels.Move: string(f.Move.UID), labels.MoveRole: labels.MoveRoleTarget}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if address != "" {
		policy.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: address}}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(Port))}},
		}}
	}
	return policy
}

// copyName is the name of the pod of the next pass. Each attempt has its own, so that the end of one is never taken for that of another.
func (f *Facts) copyName() string {
	return ID(f.Move) + "-copy-" + strconv.Itoa(len(f.Move.Status.Passes)+int(f.Move.Status.Failures))
}

// reader is the pod of a pass. Until the volume is taken away it reads the user's claim, where its pods run; then the second record.
func (f *Facts) reader(mode string) Object {
	claim := f.Move.Name
	if mode == modeFinish {
		claim = SourceName(f.Move)
	}
	pod := f.pod(f.copyName(), labels.MoveRoleCopy, mode, claim)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].VolumeMounts[0].ReadOnly = true
	if mode == modeMeasure { // it sends nothing
		pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = pod.Spec.Volumes[:1], pod.Spec.Containers[0].VolumeMounts[:1]
	}
	if node := f.Move.Status.Node; node != "" {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}},
		}}}
	}
	return pod
}

// server is the pod that receives.
func (f *Facts) server() Object {
	pod := f.pod(ID(f.Move)+"-"+labels.MoveRoleTarget, labels.MoveRoleTarget, "serve", TargetName(f.Move))
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // it ends after the verification, so that nothing connects any more
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "ssh", ContainerPort: Port}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(Port)}}, PeriodSeconds: 1,
	}
	return pod
}

// pod is a pod of the move. It runs as root, with the capabilities that writing the files of any owner takes.
func (f *Facts) pod(name, role, mode, claim string) *corev1.Pod {
	secret := labels.MoveRoleSource
	if role == labels.MoveRoleTarget {
		secret = labels.MoveRoleTarget
	}
	return &corev1.Pod{ObjectMeta: f.meta(name, role), Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), TerminationGracePeriodSeconds: new(int64(1)),
		ImagePullSecrets: f.PullSecrets,
		SecurityContext:  &corev1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsGroup: new(int64(0)), RunAsNonRoot: new(false), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Tolerations:      []corev1.Toleration{{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: ID(f.Move) + "-" + secret, DefaultMode: new(int32(0o400))}}},
		},
		Containers: []corev1.Container{{
			Name: "mover", Image: f.Image, ImagePullPolicy: f.PullPolicy, Resources: f.Move.Spec.Resources,
			Command: []string{"/bin/dash", "-c", script, "copy.sh", mode},
			Env:     []corev1.EnvVar{{Name: "TARGET", Value: ID(f.Move)}, {Name: "PORT", Value: strconv.Itoa(Port)}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP", "SETGID", "SETUID", "SYS_CHROOT"},
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: dataPath}, {Name: "keys", MountPath: keysPath, ReadOnly: true}},
		}},
	}}
}
