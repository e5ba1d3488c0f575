// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/offloading/kubelet"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving,verbs=approve

const (
	// addressTimeout is how long the address of a pod may take to appear in its status.
	addressTimeout = time.Minute
	addressRetry   = time.Second
)

// reconciler approves or denies the serving certificates that virtual kubelets request.
type reconciler struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
}

// Setup registers the controller of the certificates of virtual kubelets.
func Setup(mgr manager.Manager) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), now: time.Now}
	open := predicate.NewPredicateFuncs(func(object client.Object) bool {
		request, ok := object.(*certificatesv1.CertificateSigningRequest)
		return ok && tenantOf(request) != "" && !decided(request)
	})
	err := builder.ControllerManagedBy(mgr).Named("certificate").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(open)).Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of certificates: %w", err)
	}
	return nil
}

// Reconcile decides on one request.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var csr certificatesv1.CertificateSigningRequest
	if err := r.client.Get(ctx, request.NamespacedName, &csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	namespace := tenantOf(&csr)
	if namespace == "" || decided(&csr) {
		return reconcile.Result{}, nil
	}
	var tenant corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: namespace}, &tenant); err != nil {
		return reconcile.Result{}, fmt.Errorf("look for namespace %s: %w", namespace, err)
	}
	var slices sharingv1alpha1.ResourceSliceList
	if err := r.client.List(ctx, &slices, client.InNamespace(namespace), client.MatchingLabels{labels.Replication: "true"}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list resource slices of %s: %w", namespace, err)
	}
	var nodes, addresses []string
	for i := range slices.Items {
		if tenant.Labels[labels.TenantNamespace] == "true" { // elsewhere, a user may write slices
			nodes = append(nodes, slices.Items[i].Spec.NodeName)
		}
	}
	// Read live: the cache does not keep addresses.
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{labels.AppName: kubelet.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list virtual kubelets of %s: %w", namespace, err)
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.ServiceAccountName != kubelet.Name {
			continue
		}
		for _, ip := range pods.Items[i].Status.PodIPs {
			addresses = append(addresses, ip.IP)
		}
	}
	err := judge(&csr, nodes, addresses)
	if errors.Is(err, errAddress) && r.now().Sub(csr.CreationTimestamp.Time) < addressTimeout {
		return reconcile.Result{RequeueAfter: addressRetry}, nil
	}
	return reconcile.Result{}, r.decide(ctx, csr.DeepCopy(), err)
}

// decide writes the decision.
func (r *reconciler) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, wrong error) error {
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "VirtualKubelet",
		Message: "the virtual kubelet of a virtual node, at its own address", LastUpdateTime: metav1.NewTime(r.now()),
	}
	if wrong != nil {
		condition.Type, condition.Message = certificatesv1.CertificateDenied, wrong.Error()
	}
	csr.Status.Conditions = append(csr.Status.Conditions, condition)
	err := r.client.SubResource("approval").Update(ctx, csr)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // another approver was faster; its event follows
	}
	if err != nil {
		return fmt.Errorf("decide on certificate request %s: %w", csr.Name, err)
	}
	log.FromContext(ctx).Info("certificate request decided", "request", csr.Name, "answer", condition.Type, "why", condition.Message)
	return nil
}
