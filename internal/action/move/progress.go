// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	storagev1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/action"
)

// byteProgress shows how much a pass has copied, from the log of its pod. A log that cannot be read costs the numbers, nothing else.
type byteProgress struct {
	options  *Options
	progress action.Progress
	pod      string
	cancel   context.CancelFunc
}

func (b *byteProgress) stop() {
	if b.cancel != nil {
		b.cancel()
	}
	b.pod, b.cancel = "", nil
}

// follow starts to read when the message of the move names a pod, and ends with the pass.
func (b *byteProgress) follow(ctx context.Context, move *storagev1alpha1.VolumeMove) {
	copies := move.Status.Phase == storagev1alpha1.MoveCopying || move.Status.Phase == storagev1alpha1.MoveFinishing
	_, pod, running := strings.Cut(move.Status.Message, " runs in pod ")
	switch {
	case !copies || !running || b.options.Logs == nil:
		b.stop()
		return
	case pod == b.pod:
		return
	}
	b.stop()
	reading, cancel := context.WithCancel(ctx)
	b.pod, b.cancel = pod, cancel
	go b.read(reading, pod, Text(move))
}

func (b *byteProgress) read(ctx context.Context, pod, text string) {
	stream, err := b.options.Logs(ctx, b.options.Namespace, pod)
	if err != nil {
		return
	}
	defer stream.Close()
	start, total := time.Now(), int64(0)
	for lines := bufio.NewScanner(stream); lines.Scan() && ctx.Err() == nil; {
		var kind string
		var n int64
		if _, err := fmt.Sscan(lines.Text(), &kind, &n); err != nil {
			continue
		}
		switch kind {
		case "total":
			total = n
		case "bytes":
			b.progress.Start(text + ": " + copied(n, total, time.Since(start)))
		}
	}
}

// copied is how much was sent, how fast, and how long the rest will take at most: what the target has already is not sent again.
func copied(n, total int64, in time.Duration) string {
	seconds := in.Seconds()
	if seconds < 1 {
		return byteText(n)
	}
	rate := float64(n) / seconds
	text := fmt.Sprintf("%s, %s/s", byteText(n), byteText(int64(rate)))
	if total > n && rate > 0 {
		text += fmt.Sprintf(", at most %v left", time.Duration(float64(total-n)/rate*float64(time.Second)).Round(time.Second))
	}
	return text
}
