// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAdmit(t *testing.T) {
	server := httptest.NewServer(webhookHandler())
	defer server.Close()
	for name, test := range map[string]struct{ metadata, patch string }{
		"no labels":    {`{}`, `[{"op":"add","path":"/metadata/labels","value":{}},{"op":"add","path":"/metadata/labels/demo.liqo.io~1admitted","value":"yes"}]`},
		"other labels": {`{"labels":{"a":"b"}}`, `[{"op":"add","path":"/metadata/labels/demo.liqo.io~1admitted","value":"yes"}]`},
		"empty labels": {`{"labels":{}}`, `[{"op":"add","path":"/metadata/labels/demo.liqo.io~1admitted","value":"yes"}]`},
		"wrong value":  {`{"labels":{"demo.liqo.io/admitted":"no"}}`, `[{"op":"add","path":"/metadata/labels/demo.liqo.io~1admitted","value":"yes"}]`},
		"done already": {`{"labels":{"demo.liqo.io/admitted":"yes"}}`, ``},
	} {
		review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1","object":{"kind":"Pod","metadata":` + test.metadata + `}}}`
		status, body := post(t, server.URL+"/mutate?timeout=10s", review)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, body)
			continue
		}
		var got struct {
			APIVersion, Kind string
			Request          json.RawMessage
			Response         struct {
				UID, PatchType string
				Allowed        bool
				Patch          []byte
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		wantType := "JSONPatch"
		if test.patch == "" {
			wantType = ""
		}
		r := got.Response
		if got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" ||
			r.UID != "u-1" || !r.Allowed || r.PatchType != wantType || string(r.Patch) != test.patch {
			t.Errorf("%s: patch %s in %s", name, r.Patch, body)
		}
	}
}

func TestWebhookRefuses(t *testing.T) {
	server := httptest.NewServer(webhookHandler())
	defer server.Close()
	for _, body := range []string{
		``, `{`, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, `"` + strings.Repeat("x", maxReview) + `"`,
	} {
		if status, answer := post(t, server.URL, body); status != http.StatusBadRequest {
			t.Errorf("%.80q: %d %s", body, status, answer)
		}
	}
	if status, _ := get(t, server.Client(), server.URL+"/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d", status)
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}
