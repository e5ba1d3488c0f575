// SPDX-License-Identifier: Apache-2.0

package action

// Prefixed puts the cluster before each message.
type Prefixed struct {
	Progress
	Prefix string
}

func (p Prefixed) Start(text string) { p.Progress.Start(p.Prefix + text) }

func (p Prefixed) Done(text string) { p.Progress.Done(p.Prefix + text) }

func (p Prefixed) Info(text string) { p.Progress.Info(p.Prefix + text) }

func (p Prefixed) Warn(text string) { p.Progress.Warn(p.Prefix + text) }
