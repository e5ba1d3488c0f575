// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/storage/move/report"
)

// pods are all pods of the move.
func (f *Facts) pods() []Object {
	all := each(f.Copies)
	for _, one := range []*corev1.Pod{f.Server, f.Probe} {
		if one != nil {
			all = append(all, one)
		}
	}
	return all
}

func each(pods []corev1.Pod) (all []Object) {
	for i := range pods {
		all = append(all, &pods[i])
	}
	return all
}

// living are the objects that are not being deleted yet: their deletion changes something. A pod whose node or provider does not answer stays for a long time.
func living(all []Object) []Object {
	return slices.DeleteFunc(slices.Clone(all), func(one Object) bool { return one.GetDeletionTimestamp() != nil })
}

// receiving makes the pod that receives again if it was deleted or has ended, as with its node.
func (f *Facts) receiving() (s Step, is bool) {
	server := f.Server
	switch {
	case server == nil:
		return do(Create, f.server()), false
	case over(server):
		return do(Delete, server), false
	case !report.Ready(server):
		return f.wait("waiting for the target: %s", report.Waiting(server)), false
	}
	return Step{}, true
}

// over reports whether the pod that receives has ended: its provider has lost it, or a pass was verified and left no result. Another one takes its place.
func over(server *corev1.Pod) bool {
	return server != nil && server.DeletionTimestamp == nil && podphase.Final(server.Status.Phase)
}

// pass runs one pod until it has ended well. nil: not yet, do the step.
func (f *Facts) pass(mode string) (*v1alpha1.MovePass, Step) {
	name := f.copyName()
	var now *corev1.Pod
	var old []Object
	for i := range f.Copies {
		if f.Copies[i].Name == name && f.Copies[i].DeletionTimestamp == nil {
			now = &f.Copies[i]
		} else if f.Copies[i].Name != name {
			old = append(old, &f.Copies[i])
		}
	}
	if mode != modeMeasure && (now == nil || f.Server == nil) {
		if step, is := f.receiving(); !is {
			return nil, step
		}
	}
	switch old = living(old); {
	case len(old) > 0:
		return nil, do(Delete, old...)
	case now == nil:
		return nil, do(Create, f.reader(mode))
	case mode != modeMeasure && now.Status.PodIP != "" && f.Admitted != only(now.Status.PodIP):
		return nil, do(Apply, f.policy(only(now.Status.PodIP)))
	case now.Status.Phase == corev1.PodSucceeded:
		result, err := report.ResultOf(now)
		switch {
		case err != nil:
			return nil, f.failed(fmt.Sprintf("pod %s left no result: %v", now.Name, err), false)
		case mode == modeFinish && !result.Verified:
			return nil, f.failed(fmt.Sprintf("pod %s has not verified the files", now.Name), false)
		}
		return &v1alpha1.MovePass{All: result.All, Sent: result.Sent, Seconds: result.Seconds}, Step{}
	case now.Status.Phase == corev1.PodFailed:
		text := report.Ended(now)
		return nil, f.failed(text, strings.Contains(text, "No space left on device") || strings.Contains(text, "Disk quota exceeded"))
	case now.Status.Phase == corev1.PodRunning:
		return nil, f.wait("pass %d runs in pod %s", len(f.Move.Status.Passes)+1, now.Name)
	}
	return nil, f.wait("waiting for pod %s: %s", now.Name, report.Waiting(now))
}

// failed counts a pod that failed; another one follows, unless that is useless.
func (f *Facts) failed(text string, useless bool) Step {
	switch {
	case useless:
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("the data does not fit into the volume in %s: %s", f.Move.Status.To, text))
	case f.Move.Status.Failures >= mostFailures:
		return f.enter(v1alpha1.MoveRestoring, fmt.Sprintf("%d pods failed, the last one with: %s", f.Move.Status.Failures+1, text))
	}
	status := f.Move.Status.DeepCopy()
	status.Failures++
	status.Message = "a pod failed and is started again: " + text
	return Step{Status: status}
}

// active are the users that have a node. A pod without one cannot start while the volume is missing.
func (f *Facts) active() (pods []corev1.Pod) {
	for i := range f.Users {
		if f.Users[i].Spec.NodeName != "" {
			pods = append(pods, f.Users[i])
		}
	}
	return pods
}

func started(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "the volume was attached to a node again"
	}
	return fmt.Sprintf("pods use the claim: %s; stop them, or move with --online", names(pods))
}

func names(pods []corev1.Pod) string {
	const most = 5
	var all []string
	for i := range pods[:min(len(pods), most)] {
		all = append(all, pods[i].Name)
	}
	if len(pods) > most {
		all = append(all, fmt.Sprintf("and %d more", len(pods)-most))
	}
	return strings.Join(all, ", ")
}

// only is the network with just one address; empty if it is none.
func only(address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	return netip.PrefixFrom(parsed.Unmap(), parsed.Unmap().BitLen()).String()
}
