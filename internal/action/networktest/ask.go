// SPDX-License-Identifier: Apache-2.0

package networktest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/network/matrix"
)

// Question describes the request that a pod must send.
type Question struct {
	Namespace, Pod, Key string
	Protocol, Target    string
	Bytes               int64
}

// Asker makes a pod send a request and returns its result.
type Asker interface {
	Ask(ctx context.Context, q Question) (matrix.Answer, error)
}

// proxy calls pods through the API server, as `kubectl get --raw` does.
type proxy struct{ api rest.Interface }

func NewAsker(config *rest.Config) (Asker, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cluster at %s: %w", config.Host, err)
	}
	return proxy{api.CoreV1().RESTClient()}, nil
}

func (p proxy) Ask(ctx context.Context, q Question) (answer matrix.Answer, err error) {
	text, err := p.api.Get().Namespace(q.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", q.Pod, matrix.Port)).SubResource("proxy").
		Suffix(matrix.CheckPath).
		Param("protocol", q.Protocol).Param("target", q.Target).Param("bytes", strconv.FormatInt(q.Bytes, 10)).
		SetHeader(matrix.KeyHeader, q.Key).
		DoRaw(ctx)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("decode the answer: %w", err)
	}
	return answer, nil
}
