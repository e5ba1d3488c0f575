// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"

	"liqo.io/liqo/playground/demo/command"
	"liqo.io/liqo/playground/demo/server"
)

// admittedLabel is the label that the webhook adds to every object.
const admittedLabel = "demo.liqo.io/admitted"

// maxReview is above the largest object an API server accepts.
const maxReview = 8 << 20

// admissionReview is the part of admission.k8s.io/v1 AdmissionReview that we use.
type admissionReview struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Request    *admissionRequest  `json:"request,omitempty"`
	Response   *admissionResponse `json:"response,omitempty"`
}

type admissionRequest struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
}

type admissionResponse struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     []byte `json:"patch,omitempty"` // base64 in JSON, as the API wants it
}

// patchOperation is one step of a JSON patch (RFC 6902).
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func webhook(ctx context.Context, c command.Call) error {
	at := server.Listener{CertificateOut: c.Stdout}
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	at.Register(flags, ":8443")
	if err := command.NoArguments(c.Parse(flags)); err != nil {
		return err
	}
	if err := at.RequireTLS(); err != nil {
		return err
	}
	return at.Run(ctx, webhookHandler(), func() {})
}

// webhookHandler reviews on every path, so that a webhook configuration may use any.
func webhookHandler() http.Handler {
	mux := http.NewServeMux()
	healthy := func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") }
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", healthy)
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var review admissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil {
			answer(w, http.StatusBadRequest, fmt.Sprintf("AdmissionReview not understood: %v", err))
			return
		}
		if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Request == nil {
			answer(w, http.StatusBadRequest, fmt.Sprintf("got %s %s; want admission.k8s.io/v1 AdmissionReview with a request",
				review.APIVersion, review.Kind))
			return
		}
		response, err := admit(*review.Request)
		if err != nil {
			answer(w, http.StatusInternalServerError, err.Error())
			return
		}
		server.WriteJSON(w, http.StatusOK, admissionReview{APIVersion: review.APIVersion, Kind: review.Kind, Response: &response})
	})
	return mux
}

// admit allows everything and labels it. A patch cannot add to a map that is not there.
func admit(request admissionRequest) (admissionResponse, error) {
	response := admissionResponse{UID: request.UID, Allowed: true}
	labels := request.Object.Metadata.Labels
	if labels[admittedLabel] == "yes" {
		return response, nil
	}
	var steps []patchOperation
	if labels == nil {
		steps = append(steps, patchOperation{"add", "/metadata/labels", map[string]string{}})
	}
	steps = append(steps, patchOperation{"add", "/metadata/labels/demo.liqo.io~1admitted", "yes"})
	patch, err := json.Marshal(steps)
	if err != nil {
		return response, fmt.Errorf("encode patch: %w", err)
	}
	response.PatchType, response.Patch = "JSONPatch", patch
	return response, nil
}
