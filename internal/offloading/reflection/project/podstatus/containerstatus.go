// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Restarts counts the restarts of a pod's containers before the current remote pod. If the remote pod vanishes, the peer creates another one, which counts
// as one more restart of each container that had started: a container of which nothing ran is not restarted.
type Restarts struct {
	uid     types.UID
	before  map[string]int32
	started map[string]bool // of the current remote pod; never changed in place
}

// Observe returns the counts for the given remote pod. The zero value, after a start of this process, derives them from the status of the local pod.
func (r Restarts) Observe(local, remote *corev1.Pod) Restarts {
	if remote == nil {
		return r
	}
	next := Restarts{uid: remote.UID, before: map[string]int32{}, started: map[string]bool{}}
	if r.uid == remote.UID {
		next.before = r.before
		maps.Copy(next.started, r.started)
	}
	count := func(spec []corev1.Container, mine, theirs []corev1.ContainerStatus) {
		remote := byName(spec, theirs)
		shown := byName(spec, mine)
		for _, container := range spec {
			next.started[container.Name] = next.started[container.Name] || hasStarted(remote[container.Name])
			if r.uid == next.uid {
				continue
			}
			before := max(shown[container.Name].RestartCount, 0)
			switch {
			case r.uid == "":
				before = max(before-max(remote[container.Name].RestartCount, 0), 0)
			case r.started[container.Name]:
				before = add(max(before, r.before[container.Name]), 1)
			default:
				before = max(before, r.before[container.Name])
			}
			next.before[container.Name] = before
		}
	}
	count(local.Spec.InitContainers, local.Status.InitContainerStatuses, remote.Status.InitContainerStatuses)
	count(local.Spec.Containers, local.Status.ContainerStatuses, remote.Status.ContainerStatuses)
	return next
}

// hasStarted reports whether a container has run at least once. A kubelet also reports the end of containers that it could not start, or knows nothing
// of: with no start, or one in 1970.
func hasStarted(status corev1.ContainerStatus) bool {
	state := status.State
	return state.Running != nil || status.RestartCount > 0 || state.Terminated != nil && state.Terminated.StartedAt.Unix() > 0
}

// Equal reports whether both hold the same counts for the same remote pod.
func (r Restarts) Equal(other Restarts) bool {
	return r.uid == other.uid && maps.Equal(r.before, other.before) && maps.Equal(r.started, other.started)
}

// statuses are the local and the remote statuses of one list of containers.
type statuses struct {
	mine, theirs []corev1.ContainerStatus
	restarts     Restarts
}

// byName returns the statuses of the containers in the specification. Of several with one name, the first counts.
func byName(spec []corev1.Container, all []corev1.ContainerStatus) map[string]corev1.ContainerStatus {
	known := make(map[string]corev1.ContainerStatus, len(spec))
	for _, container := range spec {
		known[container.Name] = corev1.ContainerStatus{}
	}
	for _, status := range all {
		if first, ok := known[status.Name]; ok && first.Name == "" {
			known[status.Name] = status
		}
	}
	maps.DeleteFunc(known, func(name string, status corev1.ContainerStatus) bool { return status.Name == "" })
	return known
}

// containerStatuses returns the remote statuses of the local pod's containers, in the order of its specification.
func containerStatuses(policy corev1.RestartPolicy, spec []corev1.Container, all statuses) []corev1.ContainerStatus {
	mine, theirs := byName(spec, all.mine), byName(spec, all.theirs)
	var result []corev1.ContainerStatus
	for _, container := range spec {
		status, reported := theirs[container.Name]
		before, ok := mine[container.Name]
		switch {
		// A container that has ended for good stays ended, even if the peer created the pod again. The API server demands the same.
		case ok && before.State.Terminated != nil && status.State.Terminated == nil && !restarts(policy, container, before.State.Terminated.ExitCode):
			result = append(result, *before.DeepCopy())
		case reported:
			result = append(result, containerStatus(container, before, status, all.restarts.before[container.Name]))
		}
	}
	return result
}

func containerStatus(spec corev1.Container, mine, theirs corev1.ContainerStatus, before int32) corev1.ContainerStatus {
	theirs = *theirs.DeepCopy()
	status := corev1.ContainerStatus{
		Name: spec.Name, State: containerState(theirs.State), LastTerminationState: containerState(theirs.LastTerminationState),
		Ready: theirs.Ready, Started: theirs.Started, RestartCount: add(theirs.RestartCount, before),
		Image: project.Text(theirs.Image, maxMessage), ImageID: project.Text(theirs.ImageID, maxMessage),
		ContainerID:        project.Text(theirs.ContainerID, project.MaxReason),
		AllocatedResources: within(theirs.AllocatedResources, spec.Resources.Requests, mine.AllocatedResources),
		Resources:          resourcesWithin(theirs.Resources, &spec.Resources, mine.Resources),
		User:               containerUser(theirs.User),
	}
	if theirs.StopSignal != nil {
		status.StopSignal = project.Some(corev1.Signal(project.Text(string(*theirs.StopSignal), project.MaxReason)))
	}
	for _, mount := range spec.VolumeMounts {
		i := slices.IndexFunc(theirs.VolumeMounts, func(their corev1.VolumeMountStatus) bool {
			return their.Name == mount.Name && their.MountPath == mount.MountPath
		})
		if i < 0 {
			continue
		}
		their := theirs.VolumeMounts[i]
		shown := corev1.VolumeMountStatus{Name: mount.Name, MountPath: mount.MountPath, ReadOnly: their.ReadOnly}
		if mode := their.RecursiveReadOnly; mode != nil {
			shown.RecursiveReadOnly = project.Some(corev1.RecursiveReadOnlyMode(project.Text(string(*mode), project.MaxReason)))
		}
		status.VolumeMounts = append(status.VolumeMounts, shown)
	}
	return status
}

// containerState keeps at most one state: terminated before running before waiting.
func containerState(theirs corev1.ContainerState) corev1.ContainerState {
	switch {
	case theirs.Terminated != nil:
		ended := *theirs.Terminated
		ended.Reason, ended.Message = project.Text(ended.Reason, project.MaxReason), project.Text(ended.Message, maxMessage)
		ended.ContainerID = project.Text(ended.ContainerID, project.MaxReason)
		ended.StartedAt, ended.FinishedAt = project.Moment(ended.StartedAt), project.Moment(ended.FinishedAt)
		return corev1.ContainerState{Terminated: &ended}
	case theirs.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: project.Moment(theirs.Running.StartedAt)}}
	case theirs.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: project.Text(theirs.Waiting.Reason, project.MaxReason), Message: project.Text(theirs.Waiting.Message, maxMessage),
		}}
	}
	return corev1.ContainerState{}
}

// containerUser returns the user, nil if the API server would reject it.
func containerUser(theirs *corev1.ContainerUser) *corev1.ContainerUser {
	if theirs == nil || theirs.Linux == nil {
		return nil
	}
	bad := func(id int64) bool { return id < 0 || id > math.MaxInt32 }
	user := theirs.Linux
	if bad(user.UID) || bad(user.GID) || len(user.SupplementalGroups) > 64 || slices.ContainsFunc(user.SupplementalGroups, bad) {
		return nil
	}
	return &corev1.ContainerUser{Linux: user}
}

// within keeps the remote resources that do not exceed the pod's own, or those that it had before it was resized: schedulers and quotas of this cluster
// count what a status reports.
func within(theirs, own, before corev1.ResourceList) corev1.ResourceList {
	var kept corev1.ResourceList
	for name, most := range own {
		if had, ok := before[name]; ok && had.Cmp(most) > 0 {
			most = had
		}
		if quantity, ok := theirs[name]; ok && quantity.Sign() >= 0 && quantity.Cmp(most) <= 0 {
			if kept == nil {
				kept = corev1.ResourceList{}
			}
			kept[name] = quantity
		}
	}
	return kept
}

func resourcesWithin(theirs, own, before *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if theirs == nil {
		return nil
	}
	if before == nil {
		before = &corev1.ResourceRequirements{}
	}
	return &corev1.ResourceRequirements{Requests: within(theirs.Requests, own.Requests, before.Requests), Limits: within(theirs.Limits, own.Limits, before.Limits)}
}

// restarts reports whether the kubelet starts a container again after it ended with that exit code.
func restarts(policy corev1.RestartPolicy, container corev1.Container, code int32) bool {
	if container.RestartPolicy == nil {
		return policy == corev1.RestartPolicyAlways || policy == "" || policy == corev1.RestartPolicyOnFailure && code != 0
	}
	for _, rule := range container.RestartPolicyRules {
		if codes := rule.ExitCodes; codes != nil && slices.Contains(codes.Values, code) == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	return *container.RestartPolicy == corev1.ContainerRestartPolicyAlways || *container.RestartPolicy == corev1.ContainerRestartPolicyOnFailure && code != 0
}

// ephemeral returns the ephemeral containers of a pod as containers that are never restarted.
func ephemeral(spec *corev1.PodSpec) []corev1.Container {
	var all []corev1.Container
	never := corev1.ContainerRestartPolicyNever
	for _, debug := range spec.EphemeralContainers {
		container := corev1.Container(debug.EphemeralContainerCommon)
		container.RestartPolicy, container.RestartPolicyRules = &never, nil
		all = append(all, container)
	}
	return all
}
