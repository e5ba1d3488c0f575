// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// store is the etcd of an API server, by the JSON form of its interface.
type store struct{ url string }

// entry is one key of the store with its value and the revision of its last change.
type entry struct{ key, value, revision string }

func (c *cluster) etcd() store { return store{c.environment.ControlPlane.Etcd.URL.String()} }

// inventory returns everything that the API server stores, by key.
func (s store) inventory(ctx context.Context) (map[string]entry, error) {
	var answer struct {
		Kvs []struct {
			Key, Value []byte
			Revision   string `json:"mod_revision"`
		}
	}
	if err := s.call(ctx, "range", map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0")}, &answer); err != nil {
		return nil, err
	}
	all := map[string]entry{}
	for _, kv := range answer.Kvs {
		all[string(kv.Key)] = entry{string(kv.Key), string(kv.Value), kv.Revision}
	}
	return all, nil
}

// write deletes keys and puts entries back, in transactions of the size that etcd allows.
func (s store) write(ctx context.Context, deleted []string, put []entry) error {
	var operations []any
	for _, key := range deleted {
		operations = append(operations, map[string]any{"request_delete_range": map[string]any{"key": []byte(key)}})
	}
	for _, e := range put {
		operations = append(operations, map[string]any{"request_put": map[string]any{"key": []byte(e.key), "value": []byte(e.value)}})
	}
	const most = 100
	for len(operations) > 0 {
		n := min(most, len(operations))
		if err := s.call(ctx, "txn", map[string]any{"success": operations[:n]}, nil); err != nil {
			return err
		}
		operations = operations[n:]
	}
	return nil
}

func (s store) call(ctx context.Context, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s: %s", response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
