"""Labels changed without training: who was added or retired, how it is kept and searched.

``book.LabelBook`` keeps the changes of a run; ``overlay.LiveLabels`` lets a predictor use them.
"""
