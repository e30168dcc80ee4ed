"""``compare``'s sentences in Chinese. A sentence without a pattern stays English rather than being left out.

``{0}``, ``{1}`` ... are the pattern's groups; ``{t0}`` is group 0 translated in turn.
"""

# ruff: noqa: E501 - one pattern, one line

from __future__ import annotations

import re

STATES = {"failed": "失败", "crashed": "崩溃", "interrupted": "被中断", "running": "仍在运行", "created": "尚未开始"}
POINTS = r"(-?[\d.]+)"
PATTERNS = tuple((re.compile(pattern), chinese) for pattern, chinese in (
    # a run without a result
    (r"no evaluation '(.+)' \(there is (.+): --eval (.+)\): run (`.+`) first", "没有名为“{0}”的评估（已有 {1}）：先运行 {3}"),
    (r"no evaluation '(.+)': run (`.+`) first", "没有名为“{0}”的评估：先运行 {1}"),
    (r"still running: compare it when it is done", "仍在运行：结束后再比较"),
    (r"(failed|crashed|interrupted|created|None) after (\d+) steps \((.*)\): continue it with (`.+`)", "在 {1} 步后{s0}（{2}）：用 {3} 继续"),
    (r"(failed|crashed|interrupted|created|None) after (\d+) steps: continue it with (`.+`)", "在 {1} 步后{s0}：用 {2} 继续"),
    (r"(failed|crashed|interrupted|created|None) \((.*)\): continue it with (`.+`)", "{s0}（{1}）：用 {2} 继续"),
    (r"(failed|crashed|interrupted|created|None): continue it with (`.+`)", "{s0}：用 {1} 继续"),
    (r"the run was (.+): this compares a checkpoint of it", "该运行{s0}：这里比较的是它的一个检查点"),
    (r"the control (.+) cannot be compared: (.+)", "对照 {0} 无法比较：{t1}"),
    (r"(.+): holds no results; expected lines such as (.+)", "{0}：没有结果；每行应形如 {1}"),
    (r"(.+): holds no results: none of its (.+) lines is a JSON object; expected lines such as (.+)", "{0}：没有结果：{1} 行中没有一行是 JSON 对象；每行应形如 {2}"),
    (r"(.+): not a regular file: remove it and run (`.+`)", "{0}：不是普通文件：请删除它并运行 {1}"),
    (r"(.+): cannot be read: not a regular file", "{0}：无法读取：不是普通文件"),
    (r"(.+): cannot be read: (.+)", "{0}：无法读取：{1}"),
    (r"(.+): record (\d+): '(.+)' is (.+), expected (.+)", "{0}：第 {1} 条记录：“{2}”为 {3}，应为 {4}"),
    (r"(.+): id (.+) has (\d+) results where others have (\d+): repeated ids must be equally many samples of every problem(?: \((\d+) incomplete lines\))?", "{0}：编号 {1} 有 {2} 个结果而其他编号有 {3} 个：重复的编号必须是每道题同样多的样本"),
    # arms and seeds
    (r"the same configuration as (.+) but for the seed: counted as a seed of that arm .+", "除种子外与 {0} 配置相同：计为该组的一个种子"),
    (r"(.+) is left out of the arm of (.+?): (.+)", "{0} 未计入 {1} 一组：{t2}"),
    (r"it repeats seed (.+) of (.+)", "它与 {1} 的种子 {0} 重复"),
    (r"only one of the two has per-problem results", "两者中只有一个有逐题结果"),
    (r"(.+) answered every item as (.+) did, which another seed should not: did the seed reach the sampler\?", "{0} 的每道题都与 {1} 相同，换了种子不应如此：种子是否传到了采样器？"),
    (r"on both sides: (.+)", "两边都有：{0}"),
    # seed noise
    (r"--seed-sd", "由 --seed-sd 给定"),
    (r"prior ([\d.]+) pp worth ([\d.]+) df, no seeds measured", "先验 {0} 个百分点，相当于 {1} 个自由度；没有实测种子"),
    (r"prior ([\d.]+) pp worth ([\d.]+) df, pooled with (\d+) runs of (\d+) arms? of this task", "先验 {0} 个百分点，相当于 {1} 个自由度，与本任务 {3} 组共 {2} 次运行合并"),
    (r"seed SD ([\d.]+) and ([\d.]+) pp, measured on the (\d+) and (\d+) runs compared", "种子标准差 {0} 和 {1} 个百分点，由所比较的 {2} 次和 {3} 次运行实测"),
    (r"seed SD ([\d.]+) pp \((.+)\)", "种子标准差 {0} 个百分点（{t1}）"),
    (r"Welch's t on the scores of (\d+) and (\d+) runs: (.+) has no per-problem results", "对 {0} 次和 {1} 次运行的得分做 Welch t 检验：{2} 没有逐题结果"),
    (r"one seed and no seed noise measured: .+", "只有一个种子且没有实测种子噪声：如果其标准差为 3 个百分点，相同配方的比较约有四分之一会得出判定"),
    # what a verdict rests on
    (rf"the verdict allows for a grader error of {POINTS} pp", "判定已计入 {0} 个百分点的判分误差"),
    (r"identical results on every item: the same checkpoint\?", "每道题的结果都相同：是同一个检查点吗？"),
    (r"the interval leaves out 0, but p = (.+) is (.+) once adjusted for the number of runs", "区间不含 0，但 p = {0} 按运行数校正后为 {1}"),
    (r"the interval leaves out 0, but the exact test does not \(p = (.+)\)", "区间不含 0，但精确检验不显著（p = {0}）"),
    (rf"a real difference, shown to be smaller than {POINTS} pp", "差异真实存在，但已证明小于 {0} 个百分点"),
    (r"(\d+) of the winner's (\d+) exclusive wins would have to be grading errors to lose significance \(p ([\d.]+)\)", "胜者独对的 {1} 题中需有 {0} 题是判分错误才会失去显著性（p {2}）"),
    (r"strict and flexible extraction disagree on (\d+) of them", "其中严格与宽松提取不一致的有 {0} 题"),
    (r"this grader and (.+) disagree on (\d+) of them \((.+) alone was read twice\)", "本判分器与 {0} 不一致的有 {1} 题（只复核了 {2}）"),
    (r"this grader and (.+) disagree on (\d+) of them", "本判分器与 {0} 不一致的有 {1} 题"),
    (r"the graders disagree on (\d+) of these wins, and (\d+) errors would undo the finding: read the disputed answers before believing it \((`.+`) lists them\)", "两个判分器对其中 {0} 题看法不一，而 {1} 处错误就会推翻结论：先看有争议的回答再相信它（{2} 会列出）"),
    (r"a difference below the seed noise alone \((.+) points\) is never worth a conclusion", "小于种子噪声本身（{0} 个百分点）的差异永远不足以下结论"),
    (r"the best of (\d+) looks better than it is \((.+) pp for the best of (\d+) equal recipes\): confirm it with fresh seeds, leaving this run out", "{0} 个中的最好者显得比实际更好（{2} 个相同配方中的最好者平均高 {1} 个百分点）：请用新种子确认，它本身不计入"),
    # how the training differed
    (r"(\d+) variables changed \((.+)\): the difference is not attributable to one", "改动了 {0} 个变量（{1}）：差异不能归因于其中之一"),
    (r"other rewards: compare the components and the test score, not the reward curves", "奖励不同：请比较各分项和测试得分，不要比较奖励曲线"),
    (r"unequal sample budgets: (.+) completions generated against (.+) \((.+)x\)", "样本预算不等：生成了 {0} 条回答，对照为 {1} 条（{2} 倍）"),
    (r"checkpoints picked differently \((.+)\)", "检查点的选法不同（{0}）"),
    (r"(.+): the checkpoint was chosen on test, which gains (.+) pp for free; choose on validation", "{0}：检查点是在测试集上选的，会白得 {1} 个百分点；请在验证集上选"),
    (r"not finite in the last tenth of the steps: (.+)", "最后十分之一的步中不是有限数：{0}"),
    # not comparable
    (r"([^;]+) is scored on training data", "{0} 是在训练数据上评估的"),
    (r"scored on different splits \(([^;]+)\): evaluate both on test", "评估所用划分不同（{0}）：请都在测试集上评估"),
    (r"different tasks \(([^;]+)\)", "任务不同（{0}）"),
    (r"different problems \(([^;]+)\): evaluate both again on the same ones", "题目不同（{0}）：请在相同题目上重新评估"),
    (r"different prompts \(([^;]+)\): evaluate both with one prompt", "提示词不同（{0}）：请用同一提示词评估"),
    (r"graded by different versions \(([^;]+)\): evaluate both again with this version", "判分器版本不同（{0}）：请用当前版本重新评估"),
    (r"decoded differently \(([^;]+)\)", "解码方式不同（{0}）"),
    (r"different items: (\d+) shared, (\d+) only in ([^;]+), (\d+) only in ([^;]+); unpaired scores are not compared", "题目不同：共有 {0} 题，{1} 题只在 {2} 中，{3} 题只在 {4} 中；不比较未配对的得分"),
    (r"different numbers of samples a problem \((\d+) and (\d+)\)", "每题样本数不同（{0} 和 {1}）"),
    (r"gold answers differ on (\d+) items \(first: ([^;]+)\)", "有 {0} 题的标准答案不同（首个：{1}）"),
    (r"prompts differ on (\d+) items \(first: ([^;]+)\)", "有 {0} 题的提示词不同（首个：{1}）"),
    (r"a single problem says nothing about others", "单独一题不能说明其他题目"),
    (r"not paired: ([^;]+) has a summary but no per-problem results \((`.+`) writes them\)", "未配对：{0} 只有汇总而没有逐题结果（{1} 会写出）"),
    # what is needed
    (rf"the grader error of {POINTS} pp reaches the margin: check more items of both runs \((`.+`)\), or give --grader-error", "判分误差 {0} 个百分点已达到界限：请对两次运行各审核更多题目（{1}），或给定 --grader-error"),
    (r"no number of seeds: the item noise alone is above ([\d.]+) pp; about (.+) problems detect it in the same checkpoints \(has (.+)\)", "多少种子都不够：仅题目噪声就超过 {0} 个百分点；同样的检查点约需 {1} 道题才能检出（现有 {2}）"),
    (r"no number of seeds: the item noise alone is above ([\d.]+) pp", "多少种子都不够：仅题目噪声就超过 {0} 个百分点"),
    (r"(\d+) seeds an arm detect ([\d.]+) pp with (\d+)% power \(has (\d+) and (\d+)\)", "每组 {0} 个种子能以 {2} % 的功效检出 {1} 个百分点（现有 {3} 和 {4}）"),
    (r"these seeds already detect ([\d.]+) pp; the difference lies too near the margin to call", "现有种子已能检出 {0} 个百分点；差异离界限太近，无法判定"),
    (r"about (.+) problems detect ([\d.]+) pp with (\d+)% power \(has (.+)\)", "约 {0} 道题能以 {2} % 的功效检出 {1} 个百分点（现有 {3}）"),
    (r"(.+) problems already detect ([\d.]+) pp; the difference lies too near the margin to call", "{0} 道题已能检出 {1} 个百分点；差异离界限太近，无法判定"),
    # the whole comparison
    (r"grader error not measured: taken as 0 \((`.+`) measures it, --grader-error sets it\)", "判分误差没有实测，按 0 计（{0} 可以实测，--grader-error 可以给定）"),
    (r"no summary beside (.+): prompts, grader version and decoding are not checked there", "{0} 旁边没有汇总：未检查其提示词、判分器版本和解码方式"),
    (r"scored on validation, where checkpoints are chosen: report the test split", "在用来选检查点的验证集上评估：请报告测试集"),
    (r"(\d+) incomplete lines? ignored in (.+) \((.+)\)", "{1}（{2}）中忽略了 {0} 行不完整的记录"),
    (r"(.+): unreadable and ignored \((.+)\)", "{0}：无法读取，已忽略（{1}）"),
    (r"(.+): not a JSON object, ignored", "{0}：不是 JSON 对象，已忽略"),
))  # fmt: skip


def translate(sentence: str) -> str:
    """Example: ``translate("it repeats seed 1 of run-02")`` -> ``"它与 run-02 的种子 1 重复"``."""
    whole = _matched(sentence)
    if whole is not None:
        return whole
    parts, done = sentence.split("; "), []
    while parts:
        # a sentence may hold a semicolon itself: the longest that is known counts
        ends = range(len(parts), 0, -1)
        known = ((end, text) for end in ends if (text := _matched("; ".join(parts[:end]))) is not None)
        end, text = next(known, (1, parts[0]))
        done.append(text)
        parts = parts[end:]
    return "；".join(done)


def _matched(sentence: str) -> str | None:
    for pattern, chinese in PATTERNS:
        found = pattern.fullmatch(sentence)
        if found is not None:
            groups = [group or "" for group in found.groups()]
            turned = {f"t{i}": translate(group) for i, group in enumerate(groups) if f"{{t{i}}}" in chinese}
            states = {f"s{i}": STATES.get(group, group) for i, group in enumerate(groups)}
            return chinese.format(*groups, **turned, **states)
    return None
