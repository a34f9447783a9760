"""Slow reference, in plain torch, of the CPU kernels that SGLang calls.

SGLang has a CPU path for EAGLE, but there is no wheel of its compiled CPU kernels.  These are the
functions that path calls where there is no AMX unit, written from their call sites.  Batches are
tiny, so plain loops are fine.  Anything not listed fails with AttributeError, on purpose.
"""

import ctypes

import torch

__version__ = "0.0.0+reference"


# --- request/token pool bookkeeping ---------------------------------------


def assign_req_to_token_pool_cpu(
    req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len=None
):
    """Write consecutive slots of out_cache_loc at [start, end) of each request."""
    at = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        req_to_token[r, s:e] = out_cache_loc[at : at + e - s].to(req_to_token.dtype)
        at += e - s


def assign_extend_cache_locs_cpu(
    req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len=None
):
    """Read the slots at [start, end) of each request into out_cache_loc."""
    at = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        out_cache_loc[at : at + e - s] = req_to_token[r, s:e].to(out_cache_loc.dtype)
        at += e - s


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    """Read the topk * num_steps draft slots that follow each request's sequence."""
    n = topk * num_steps
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out_cache_loc[i * n : (i + 1) * n] = req_to_token[r, s : s + n]


def build_draft_decode_metadata_cpu(
    req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len
):
    """One row per (request, branch): the prefix, then that branch's own slots."""
    rows = req_to_token.new_zeros((len(seq_lens) * topk, pool_len))
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        for t in range(topk):
            row = rows[i * topk + t]
            row[:s] = req_to_token[r, :s]
            a = s + t * num_steps
            row[s : s + num_steps] = req_to_token[r, a : a + num_steps]
    return rows


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    """Move KV rows src -> tgt in every layer buffer (all reads before writes)."""
    src, tgt = src_loc.tolist(), tgt_loc.tolist()
    for base, n in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + s * n, n) for s in src]
        for t, row in zip(tgt, rows, strict=True):
            ctypes.memmove(base + t * n, row, n)


# --- EAGLE tree ------------------------------------------------------------


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    seq_lens,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    draft_token_num,
    tree_mask_mode,
):
    if int(tree_mask_mode) != 1:
        raise NotImplementedError("only the QLEN_ONLY tree mask (the CPU default)")
    n = draft_token_num
    mask = tree_mask.view(-1, n, n)
    for b, seq_len in enumerate(seq_lens.tolist()):
        chosen = selected_index[b].tolist()
        where = {c: i + 1 for i, c in enumerate(chosen)}  # candidate -> tree node
        parents = parent_list[b].tolist()

        def parent(node, chosen=chosen, where=where, parents=parents):
            group = chosen[node - 1] // topk
            return 0 if group == 0 else where.get(parents[group])

        retrieve_index[b] = torch.arange(b * n, (b + 1) * n)
        mask[b] = False
        mask[b, :, 0] = True
        positions[b * n] = seq_len
        for node in range(n - 1, 0, -1):
            p = parent(node)
            if p is None:
                continue
            if retrieve_next_token[b, p] != -1:
                retrieve_next_sibling[b, node] = retrieve_next_token[b, p].clone()
            retrieve_next_token[b, p] = node
        for node in range(1, n):
            up, deep = node, 0
            while up:
                mask[b, node, up] = True
                deep += 1
                up = parent(up)
            positions[b * n + node] = seq_len + deep


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    target = target_predict.flatten().tolist()
    for b in range(candidates.shape[0]):
        cand = candidates[b].tolist()
        index = retrive_index[b].tolist()
        child = retrive_next_token[b].tolist()
        sibling = retrive_next_sibling[b].tolist()
        last, node, num = index[0], 0, 0
        accept_index[b, 0] = last
        for _ in range(1, accept_index.shape[1]):
            node = child[node]
            while node != -1 and cand[node] != target[last]:
                node = sibling[node]
            if node == -1:
                break
            predicts[last] = target[last]
            num += 1
            last = index[node]
            accept_index[b, num] = last
        accept_token_num[b] = num
        predicts[last] = target[last]


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, stride):
    flat = accept_tokens.flatten()
    at = torch.arange(len(accept_lens)) * stride + accept_lens.long() - 1
    bonus_tokens[: len(at)] = flat[at].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    kept = accept_index.flatten()
    kept = kept[kept > -1].long()
    accept_out_cache_loc[: len(kept)] = out_cache_loc[kept]


def rotate_input_ids_cpu(
    input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None
):
    starts, lens = extend_start_loc.tolist(), extend_seq_lens.tolist()
    for i, (s, n) in enumerate(zip(starts, lens, strict=True)):
        if n <= 0:
            continue
        input_ids[s : s + n - 1] = input_ids[s + 1 : s + n].clone()
        last = s + n - 1 if select_index is None else int(select_index[i])
        input_ids[last] = topk_index.flatten()[i]


# --- attention (the "intel_amx" backend's two entry points) -----------------


def _attend(q, k, v, scale, cap, allowed):
    """q [n, H, D]; k, v [m, Hkv, D]; allowed [n, m] bool."""
    groups = q.shape[1] // k.shape[1]
    k = k.float().repeat_interleave(groups, 1)
    v = v.float().repeat_interleave(groups, 1)
    w = torch.einsum("nhd,mhd->hnm", q.float(), k) * scale
    if cap and cap > 0:
        w = cap * torch.tanh(w / cap)
    w = w.masked_fill(~allowed, float("-inf")).softmax(-1)
    return torch.einsum("hnm,mhd->nhd", w, v)


def _check(scales, is_cross, window, sinks):
    if any(s != 1.0 for s in scales) or is_cross or sinks is not None or window > 0:
        raise NotImplementedError("plain unscaled self-attention only")


def _extend_attention(q, k, v, o, k_buffer, v_buffer, *args):
    scales = args[:2] if not torch.is_tensor(args[0]) else ()  # SGLang >= 0.5.20
    (
        req_to_token, req_pool_indices, seq_lens, extend_seq_lens, extend_start_loc,
        _max_len_extend, scale, cap, is_cross, window, _encoder_lens, sinks, tree_mask,
        *rest,
    ) = args[len(scales) :]  # fmt: skip
    is_causal = rest[0] if rest else True  # SGLang >= 0.5.19
    _check(scales, is_cross, window, sinks)
    mask_at = 0
    for r, total, n, s in zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        strict=True,
    ):
        slots = req_to_token[r, :total].long()
        old = total - n
        allowed = torch.ones(n, total, dtype=torch.bool)
        if tree_mask is not None:
            allowed[:, old:] = tree_mask[mask_at : mask_at + n * n].view(n, n)
            mask_at += n * n
        elif is_causal:
            allowed[:, old:] = torch.ones(n, n, dtype=torch.bool).tril()
        o[s : s + n] = _attend(
            q[s : s + n], k_buffer[slots], v_buffer[slots], scale, cap, allowed
        ).to(o.dtype)


def _decode_attention(q, k_buffer, v_buffer, *args):
    scales = args[:2] if not torch.is_tensor(args[0]) else ()  # SGLang >= 0.5.20
    (
        o, k, v, cache_loc, _attn_logits, req_to_token, req_pool_indices, seq_lens,
        scale, cap, is_cross, window, _encoder_lens, sinks,
    ) = args[len(scales) :]  # fmt: skip
    _check(scales, is_cross, window, sinks)
    if k is not None:
        k_buffer[cache_loc] = k.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[cache_loc] = v.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    for i, (r, total) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        slots = req_to_token[r, :total].long()
        allowed = torch.ones(1, total, dtype=torch.bool)
        o[i : i + 1] = _attend(
            q[i : i + 1], k_buffer[slots], v_buffer[slots], scale, cap, allowed
        ).to(o.dtype)


torch.ops.sgl_kernel.extend_attention_cpu = _extend_attention
torch.ops.sgl_kernel.decode_attention_cpu = _decode_attention
