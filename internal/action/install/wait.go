// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	liqoaction "liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
)

const (
	// complainAfter is the time after which problems of pods are reported during the wait.
	complainAfter  = 10 * time.Second
	waitingForPods = "Waiting until the pods are ready"
	goneInterval   = 50 * time.Millisecond
)

// waitingClient is Helm's client with a waiter of our own: it reports problems as soon as it observes them, and ends with the context.
type waitingClient struct {
	*kube.Client
	wait waiter
}

func (c *waitingClient) GetWaiterWithOptions(strategy kube.WaitStrategy, options ...kube.WaitOption) (kube.Waiter, error) {
	inner, err := c.Client.GetWaiterWithOptions(strategy, append(options, kube.WithWaitContext(c.wait.ctx))...)
	if err != nil {
		return nil, err
	}
	wait := c.wait
	wait.Waiter = inner
	return &wait, nil
}

func (c *waitingClient) GetWaiter(strategy kube.WaitStrategy) (kube.Waiter, error) {
	return c.GetWaiterWithOptions(strategy)
}

// waiter waits for the resources of one operation. Helm's own waiter waits for hooks.
type waiter struct {
	kube.Waiter
	ctx       context.Context //nolint:containedctx // Helm's interface hands none over
	client    client.WithWatch
	namespace string
	progress  liqoaction.Progress
	// skip disables the wait.
	skip bool
}

// Wait waits until all Deployments and DaemonSets among the resources have all their pods.
func (w *waiter) Wait(resources kube.ResourceList, _ time.Duration) error {
	if w.skip {
		return nil
	}
	wanted := map[string][]string{}
	for _, one := range resources {
		kind := one.Mapping.GroupVersionKind.Kind
		wanted[kind] = append(wanted[kind], one.Name)
	}
	w.progress.Start(waitingForPods)
	complaints := complaints{start: time.Now()}
	err := await.Follow(w.ctx, w.client, &appsv1.DeploymentList{}, func(all []appsv1.Deployment) (bool, error) {
		complaints.report(w)
		ready := 0
		for i := range all {
			if slices.Contains(wanted["Deployment"], all[i].Name) && deploymentReady(&all[i]) {
				ready++
			}
		}
		return ready == len(wanted["Deployment"]), nil
	}, client.InNamespace(w.namespace))
	if err != nil || len(wanted["DaemonSet"]) == 0 {
		return err
	}
	return await.Follow(w.ctx, w.client, &appsv1.DaemonSetList{}, func(all []appsv1.DaemonSet) (bool, error) {
		complaints.report(w)
		dead, err := deadNodes(w.ctx, w.client)
		if err != nil {
			w.progress.Warn(err.Error())
			return false, nil // the next call tries again
		}
		ready := 0
		for i := range all {
			if slices.Contains(wanted["DaemonSet"], all[i].Name) && daemonSetReady(&all[i], dead) {
				ready++
			}
		}
		return ready == len(wanted["DaemonSet"]), nil
	}, client.InNamespace(w.namespace))
}

// WaitWithJobs is the same as Wait: the only jobs of the chart are hooks.
func (w *waiter) WaitWithJobs(resources kube.ResourceList, timeout time.Duration) error {
	return w.Wait(resources, timeout)
}

// WaitForDelete waits until all resources are gone.
func (w *waiter) WaitForDelete(resources kube.ResourceList, _ time.Duration) error {
	for _, one := range resources {
		err := wait.PollUntilContextCancel(w.ctx, goneInterval, true, func(context.Context) (bool, error) {
			err := one.Get()
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("wait until %s %s is gone: %w", one.Mapping.GroupVersionKind.Kind, one.Name, err)
		}
	}
	return nil
}

func deploymentReady(d *appsv1.Deployment) bool {
	want := *cmp.Or(d.Spec.Replicas, new(int32(1)))
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

// daemonSetReady ignores dead nodes: their pods start when the nodes return.
func daemonSetReady(d *appsv1.DaemonSet, dead int32) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedNumberScheduled+dead >= s.DesiredNumberScheduled && s.NumberAvailable+dead >= s.DesiredNumberScheduled
}

func deadNodes(ctx context.Context, c client.Reader) (dead int32, err error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		ready := func(one corev1.NodeCondition) bool {
			return one.Type == corev1.NodeReady && one.Status == corev1.ConditionTrue
		}
		if node := &nodes.Items[i]; node.Labels[labels.Type] != labels.TypeVirtualNode && !slices.ContainsFunc(node.Status.Conditions, ready) {
			dead++
		}
	}
	return dead, nil
}

// complaints reports each problem once, while the user may still have time to solve it.
type complaints struct {
	start    time.Time
	reported []string
}

func (c *complaints) report(w *waiter) {
	if time.Since(c.start) < complainAfter {
		return
	}
	for _, problem := range podProblems(observe(w.ctx, w.client, w.namespace).pods) {
		if !slices.Contains(c.reported, problem) {
			c.reported = append(c.reported, problem)
			w.progress.Warn(problem)
		}
	}
}

// observation holds the objects that explain why an installation does not get ready.
type observation struct {
	pods     []corev1.Pod
	services []corev1.Service
	events   []corev1.Event
}

// observe reads the objects of an installation, as far as it can.
func observe(ctx context.Context, c client.Reader, namespace string) observation {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var pods corev1.PodList
	var services corev1.ServiceList
	var events corev1.EventList
	for _, list := range []client.ObjectList{&pods, &services, &events} {
		_ = c.List(ctx, list, client.InNamespace(namespace)) // a partial observation is better than none
	}
	return observation{pods.Items, services.Items, events.Items}
}

// hints lists the problems of an installation that did not become ready; empty if there are none.
func (o observation) hints(namespace string) string {
	problems := podProblems(o.pods)
	for i := range o.services {
		if service := &o.services[i]; service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 {
			problems = append(problems, noAddress(service.Name))
		}
	}
	if len(o.pods) == 0 { // the creators of pods report their problems only in events
		for i := range o.events {
			if event := &o.events[i]; event.Type == corev1.EventTypeWarning {
				problems = append(problems, fmt.Sprintf("%s %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message))
			}
		}
	}
	slices.Sort(problems)
	problems = slices.Compact(problems)
	if len(problems) == 0 {
		return ""
	}
	return "\nobserved in namespace " + namespace + ":\n- " + strings.Join(problems, "\n- ")
}

func noAddress(service string) string {
	return fmt.Sprintf("Service %s has no address, because no load balancer gave it one; without a load balancer, use --service-type NodePort", service)
}

// podProblems lists the reasons that pods report for not running.
func podProblems(pods []corev1.Pod) (problems []string) {
	for i := range pods {
		pod := &pods[i]
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				problems = append(problems, fmt.Sprintf("pod %s has no node: %s", pod.Name, condition.Message))
			}
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			waiting := status.State.Waiting
			if waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing" {
				continue
			}
			text := fmt.Sprintf("pod %s: %s", pod.Name, waiting.Reason)
			if waiting.Message != "" {
				text += ": " + waiting.Message
			}
			switch {
			case strings.Contains(waiting.Reason, "Image"):
				text += fmt.Sprintf("; the nodes need the image %s", status.Image)
			case waiting.Reason == "CrashLoopBackOff":
				text += fmt.Sprintf("; see: kubectl logs -n %s %s --previous", pod.Namespace, pod.Name)
			}
			problems = append(problems, text)
		}
	}
	return problems
}
