// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// image is what the pods of a Page run: it is on every node of the playground.
const image = "playground.local/tools:1"

type reconciler struct {
	client.Client
	recorder events.EventRecorder
	pod      string
}

func (r *reconciler) register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&Page{}).Owns(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).Complete(r)
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var page Page
	if err := r.Get(ctx, request.NamespacedName, &page); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !page.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	text := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: page.Namespace, Name: page.Name}}
	changed, err := controllerutil.CreateOrUpdate(ctx, r.Client, text, func() error {
		text.Data = map[string]string{"index.html": page.Spec.Text}
		return controllerutil.SetControllerReference(&page, text, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("text of page %s: %w", page.Name, err)
	}
	server := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: page.Namespace, Name: page.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, server, func() error {
		serve(server, page.Name, page.Spec.Replicas)
		return controllerutil.SetControllerReference(&page, server, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("server of page %s: %w", page.Name, err)
	}
	if changed != controllerutil.OperationResultNone {
		r.recorder.Eventf(&page, text, corev1.EventTypeNormal, "Written", "Write", "%s wrote the text", r.pod)
	}
	return ctrl.Result{}, r.report(ctx, &page, server)
}

// serve makes a Deployment that of a page.
func serve(server *appsv1.Deployment, name string, replicas *int32) {
	labels, none := map[string]string{"page": name}, int64(0)
	server.Spec.Replicas = replicas
	server.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	pod := &server.Spec.Template
	pod.Labels, pod.Spec.TerminationGracePeriodSeconds = labels, &none
	if len(pod.Spec.Containers) == 0 { // later, it has the defaults of the API server
		pod.Spec.Containers = []corev1.Container{{
			Name: "server", Image: image, ImagePullPolicy: corev1.PullNever, Command: []string{"busybox", "httpd", "-f", "-p", "8080", "-h", "/page"},
			VolumeMounts: []corev1.VolumeMount{{Name: "page", MountPath: "/page"}},
		}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "page", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}}}
	}
}

// report writes the status if something is new.
func (r *reconciler) report(ctx context.Context, page *Page, server *appsv1.Deployment) error {
	before := client.MergeFrom(page.DeepCopyObject().(*Page))
	condition := metav1.Condition{Type: available, Status: metav1.ConditionFalse, Reason: "Waiting", ObservedGeneration: page.Generation}
	if page.Spec.Replicas != nil && server.Status.AvailableReplicas == *page.Spec.Replicas {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Served"
	}
	condition.Message = fmt.Sprintf("%d servers are available", server.Status.AvailableReplicas)
	if !meta.SetStatusCondition(&page.Status.Conditions, condition) {
		return nil
	}
	page.Status.ReconciledBy = r.pod
	return r.Status().Patch(ctx, page, before)
}
