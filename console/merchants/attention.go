package merchants

import (
	"html/template"
	"net/url"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// attention returns what a shop owner should look at first, the most urgent first.
func (p *merchantPage) attention(w web.Words) (all web.Attention, err error) {
	for _, find := range []func(web.Words) (web.Attention, error){p.merchantAttention, p.keyAttention, p.allowlistAttention, p.webhookAttention, p.refundAttention} {
		found, err := find(w)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// offer adds the action to a text if the viewer may do it.
func (p *merchantPage) offer(text template.HTML, may bool, action, path string) web.Notice {
	if !may {
		return web.Notice{Text: text}
	}
	return web.Notice{Text: text, Action: action, Link: p.Base + path}
}

func (p *merchantPage) merchantAttention(w web.Words) (web.Attention, error) {
	key, in := "attention.active", p.Acceptance.MerchantForce(p.Merchant)
	switch {
	case !p.Merchant.DeletionTimestamp.IsZero():
		key = "attention.deleted"
	case p.Merchant.Spec.State == v1alpha1.MerchantSuspended:
		key = "attention.suspended"
	case p.Merchant.Spec.State == v1alpha1.MerchantClosed:
		key = "attention.closed"
	case in == issuer.InForce:
		return nil, nil
	}
	if in != issuer.InForce {
		key += "." + string(in)
	}
	return web.Attention{{Text: w.HTML(key)}}, nil
}

func (p *merchantPage) keyAttention(w web.Words) (all web.Attention, err error) {
	for _, key := range p.Keys {
		ends := key.Spec.ExpiresAt
		if key.Overlap != nil && key.OldKeyUse.Used {
			ends = key.Overlap
		}
		at, err := p.Clock.On(ends)
		if err != nil {
			return nil, err
		}
		switch {
		case key.Force == issuer.NotInForce && key.Wants != keys.WantsActive:
			all = append(all, web.Notice{Text: w.HTML("attention.key.waits", key.Name)})
		case key.Lost:
			all = append(all, p.offer(w.HTML("attention.key.lost", key.Name), p.Rights.RotateKeys, w.Text("attention.key.lost.action"), "/keys/"+key.Name+"/rotate"))
		case key.Overlap != nil && key.OldKeyUse.Used:
			all = append(all, p.offer(w.HTML("attention.key.old", key.Name, at), true, w.Text("attention.key.old.action"), "?key="+url.QueryEscape(key.Name)+"#key-"+key.Name))
		case key.Expiring:
			all = append(all, p.offer(w.HTML("attention.key.expiring", key.Name, at), p.Rights.IssueKeys, w.Text("attention.key.expiring.action"), "/new-key"))
		}
	}
	return all, nil
}

// blockedFor is how long a blocked address is worth a look.
const blockedFor = 24 * time.Hour

func (p *merchantPage) allowlistAttention(w web.Words) (web.Attention, error) {
	var blocks []v1alpha1.RefusedBlock
	if p.Merchant.Status.Allowlist != nil {
		for _, block := range p.Merchant.Status.Allowlist.Refused {
			if p.Clock.Now.Sub(block.LastSeen.Time) < blockedFor {
				blocks = append(blocks, block)
			}
		}
	}
	if len(blocks) == 0 {
		return nil, nil
	}
	key := "attention.blocked"
	if p.Allowlist.ReportOnly {
		key = "attention.reported"
	}
	may := p.Rights.EditAllowlist && p.Manager.Tool == ""
	if len(blocks) == 1 && blocks[0].KeyID != "" { // nothing here changes the list of a key
		return web.Attention{{Text: w.HTML("attention.blocked.key", p.Keys.Name(blocks[0].KeyID), blocks[0].Block)}}, nil
	}
	if len(blocks) == 1 {
		return web.Attention{p.offer(w.Count(key, blocks[0].Requests, blocks[0].Block), may, w.Text("attention.blocked.action"), "/allowlist?"+url.Values{"add": {blocks[0].Block}}.Encode())}, nil
	}
	return web.Attention{p.offer(w.HTML(key+".many", len(blocks), blocks[0].Block), true, w.Text("attention.blocked.many.action"), "#allowlist")}, nil
}

func (p *merchantPage) webhookAttention(w web.Words) (all web.Attention, err error) {
	if p.Merchant.Spec.Webhook != nil && (p.Webhook.Failing || p.Webhook.Retrying) {
		found := web.Notice{Text: p.Webhook.Message}
		switch {
		case p.Webhook.Disabled() && p.Rights.EditWebhook:
			found.Action, found.Link, found.Post = w.Text("attention.webhook.disabled.action"), p.Base+"/webhook/resume", true
		case !p.Webhook.Disabled():
			found.Action, found.Link = w.Text("attention.webhook.failing.action"), p.Base+"#attempts"
		}
		all = append(all, found)
	}
	if p.Webhook.Dead > 0 {
		all = append(all, p.offer(w.Count("attention.dead", p.Webhook.Dead), p.Rights.EditWebhook && p.Merchant.Spec.Webhook != nil, w.Text("attention.dead.action"), "/dead-letters/resend"))
	}
	return all, nil
}

func (p *merchantPage) refundAttention(w web.Words) (web.Attention, error) {
	if p.Refunds.Count == 0 {
		return nil, nil
	}
	text := w.Count("attention.refund", p.Refunds.Count)
	return web.Attention{p.offer(text, p.Rights.ViewPayments, w.Text("attention.refund.action"), "/payments/"+p.Refunds.Oldest.String())}, nil
}
