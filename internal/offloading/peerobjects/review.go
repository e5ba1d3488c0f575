// SPDX-License-Identifier: Apache-2.0

package peerobjects

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"liqo.io/liqo/internal/offloading/ledger"
)

// Path is the path of the webhook that bounds what a peer has and writes.
const Path = "/validate/peer-objects"

// peerAccount is the service account of a peer in its tenant namespace.
const peerAccount = "liqo-peer"

// Register adds the webhook to a server.
func Register(server webhook.Server, peers *Ledger) {
	server.Register(Path, &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		return peers.Review(request)
	})})
}

// Review admits what is created or updated: by a peer, and claims by others, because Kubernetes makes some for the pods of peers.
func (p *Ledger) Review(request admission.Request) admission.Response {
	if p == nil { // in tests
		return admission.Allowed("")
	}
	change, err := p.change(request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the object that is to be stored: %w", err))
	}
	verdict, err := p.admit(change)
	switch {
	case err != nil:
		return admission.Errored(http.StatusServiceUnavailable, err)
	case verdict.Wait > 0:
		return later(verdict.Problem, verdict.Wait)
	case verdict.Problem != "":
		return admission.Denied(verdict.Problem)
	}
	return admission.Allowed("")
}

// later refuses a request for the moment. Clients of Kubernetes wait as long as the answer asks for, and try again.
func later(problem string, wait time.Duration) admission.Response {
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: problem,
		Details: &metav1.StatusDetails{RetryAfterSeconds: int32(min(wait, longestWait).Seconds())},
	}}}
}

// longestWait bounds what a client is asked to wait: other objects are smaller, and the value may have been changed.
const longestWait = 10 * time.Second

// change is what a request does, for the ledger.
func (p *Ledger) change(request admission.Request) (ledger.Change, error) {
	kind := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	use, name, err := ledger.Measure(kind, request.Object.Raw, request.Name)
	if err != nil {
		return ledger.Change{}, err
	}
	writer, written := tenantOfPeer(request.UserInfo.Username)
	change := ledger.Change{
		Key: ledger.Key{Resource: kind, Namespace: request.Namespace, Name: name}, Use: use, Now: p.now(), DryRun: request.DryRun != nil && *request.DryRun,
		New: request.Operation == admissionv1.Create,
		// The API server stores nothing if nothing changes.
		Written: written && !bytes.Equal(request.Object.Raw, request.OldObject.Raw),
		// Objects of a tenant namespace have bounds in their schemas, and the status of our objects is no object. An informer counts them.
		Kept: request.SubResource == "" && !inTenant(kind),
	}
	if request.Operation == admissionv1.Update && change.Kept {
		// One that cannot be read any more uses nothing: then the update counts with all that it has.
		change.Before, _, _ = ledger.Measure(kind, request.OldObject.Raw, request.Name)
	}
	// A new namespace may not be known yet, but the tenant namespace of its peer is.
	if change.Peer = p.known(request.Namespace); written {
		change.Peer = p.tenant(writer)
	}
	return change, nil
}

// tenantOfPeer returns the tenant namespace of the peer that is this user.
func tenantOfPeer(user string) (namespace string, isPeer bool) {
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	namespace, name, _ := strings.Cut(account, ":")
	return namespace, isAccount && name == peerAccount && strings.HasPrefix(namespace, "liqo-tenant-")
}
